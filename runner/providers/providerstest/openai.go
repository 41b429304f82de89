package providerstest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
)

// An OpenAIServer is a server on the loopback interface that speaks the two wire formats
// of OpenAI: POST /v1/chat/completions and POST /v1/responses, both as streams. It checks
// each request as strictly as the public API reference states, answers an invalid one
// with status 400 as the API does, and keeps the fault for [OpenAIServer.Faults].
// [NewOpenAIServer] starts one. It is safe for concurrent use.
type OpenAIServer struct {
	server *httptest.Server
	answer func(OpenAIRequest) OpenAIAnswer
	mu     struct {
		sync.Mutex
		requests []OpenAIRequest
		faults   []string
		ended    int
	}
}

// An OpenAIRequest is one request that an [OpenAIServer] received.
type OpenAIRequest struct {
	// Path is /v1/chat/completions or /v1/responses.
	Path   string
	Header http.Header
	Body   []byte
	// Number counts the valid requests before this one.
	Number int
}

// An OpenAIEnd says how an [OpenAIServer] ends a response.
type OpenAIEnd uint8

// The ends of a response.
const (
	// OpenAIEndWhole ends the response in order.
	OpenAIEndWhole OpenAIEnd = iota
	// OpenAIEndReset closes the connection without the end of the response.
	OpenAIEndReset
	// OpenAIEndHeld keeps the connection open until the client closes it.
	OpenAIEndHeld
)

// An OpenAIAnswer is the response to one request.
type OpenAIAnswer struct {
	// Status is the status code. Zero: 200. With NoHeader no byte of a response is sent.
	Status   int
	NoHeader bool
	Header   http.Header
	// Chunks are written and flushed one after another: the events of a stream, or the
	// body of an error.
	Chunks []string
	End    OpenAIEnd
}

// OpenAIFailure returns the answer of a request that fails with a status and an error of
// the API.
func OpenAIFailure(status int, code, message string) OpenAIAnswer {
	return OpenAIAnswer{Status: status, Header: http.Header{"Content-Type": {"application/json"}}, Chunks: []string{openAIErrorBody(code, message)}}
}

// openAIErrorBody returns the JSON body of an error of the API.
func openAIErrorBody(code, message string) string {
	return encodeWire(map[string]any{"error": map[string]any{"message": message, "type": "invalid_request_error", "param": nil, "code": code}})
}

// NewOpenAIServer starts a server that answers each valid request with the result of
// answer, which may be called concurrently. The caller closes the server.
func NewOpenAIServer(answer func(OpenAIRequest) OpenAIAnswer) *OpenAIServer {
	s := &OpenAIServer{answer: answer}
	s.server = httptest.NewServer(http.HandlerFunc(s.serve))
	return s
}

// URL returns the base URL, which ends in /v1.
func (s *OpenAIServer) URL() string { return s.server.URL + "/v1" }

// Close ends open connections and stops the server.
func (s *OpenAIServer) Close() {
	s.server.CloseClientConnections()
	s.server.Close()
}

// Requests returns the valid requests so far, in order.
func (s *OpenAIServer) Requests() []OpenAIRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.mu.requests)
}

// Faults returns the faults of the invalid requests so far, in order.
func (s *OpenAIServer) Faults() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.mu.faults)
}

// Ended returns the number of responses that have ended, in order or not.
func (s *OpenAIServer) Ended() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.ended
}

// serve answers one request.
func (s *OpenAIServer) serve(w http.ResponseWriter, r *http.Request) {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.mu.ended++
	}()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	request := OpenAIRequest{Path: r.URL.Path, Header: r.Header.Clone(), Body: body}
	w.Header().Set("X-Request-Id", "req_local")
	if fault := checkOpenAI(r.Method, request); fault != nil {
		s.mu.Lock()
		s.mu.faults = append(s.mu.faults, fault.Error())
		s.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		io.WriteString(w, openAIErrorBody("invalid_request", fault.Error()))
		return
	}
	s.mu.Lock()
	request.Number = len(s.mu.requests)
	s.mu.requests = append(s.mu.requests, request)
	s.mu.Unlock()
	s.answer(request).write(w, r)
}

// write sends the answer.
func (a OpenAIAnswer) write(w http.ResponseWriter, r *http.Request) {
	if !a.NoHeader {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for name, values := range a.Header {
			w.Header()[name] = values
		}
		w.WriteHeader(max(a.Status, http.StatusOK))
		w.(http.Flusher).Flush()
		for _, chunk := range a.Chunks {
			if _, err := io.WriteString(w, chunk); err != nil {
				return
			}
			w.(http.Flusher).Flush()
		}
	}
	switch a.End {
	case OpenAIEndWhole:
	case OpenAIEndReset:
		panic(http.ErrAbortHandler)
	case OpenAIEndHeld:
		<-r.Context().Done()
	}
}

// checkOpenAI returns the first fault of a request.
func checkOpenAI(method string, r OpenAIRequest) error {
	if method != http.MethodPost {
		return fmt.Errorf("method %s is not POST", method)
	}
	if kind := r.Header.Get("Content-Type"); !strings.HasPrefix(kind, "application/json") {
		return fmt.Errorf("content type %q is not application/json", kind)
	}
	switch r.Path {
	case "/v1/chat/completions":
		return CheckOpenAIChat(r.Body)
	case "/v1/responses":
		return CheckOpenAIResponses(r.Body)
	}
	return fmt.Errorf("unknown path %s", r.Path)
}

// An OpenAICall is a call in a streamed reply.
type OpenAICall struct {
	ID, Name, Arguments string
}

// An OpenAIReply is what a model replies. [OpenAIChatStream] and [OpenAIResponsesStream]
// write it as a stream in their format.
type OpenAIReply struct {
	Thinking string
	// Encrypted is the encrypted content of a reasoning item before the other output.
	// It is written in the Responses format only. Empty: no reasoning item.
	Encrypted     string
	Text, Refusal string
	Calls         []OpenAICall
	// Finish is the finish reason in Chat Completions, and the reason of an incomplete
	// response in Responses. Empty: the reply is complete.
	Finish string
}

// pieces cuts text into up to three pieces at rune boundaries, so that a stream has it in
// several deltas.
func pieces(text string) []string {
	runes := []rune(text)
	var cut []string
	for size := len(runes)/3 + 1; len(runes) > 0; runes = runes[min(size, len(runes)):] {
		cut = append(cut, string(runes[:min(size, len(runes))]))
	}
	return cut
}

// encodeWire returns value as JSON. Its types are those of this package, which encode
// without an error.
func encodeWire(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(data)
}
