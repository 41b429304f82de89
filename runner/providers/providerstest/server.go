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

// A ModelServer is a server on the loopback interface that speaks the API of a provider.
// It checks each request as strictly as the public API reference states, answers an
// invalid one with status 400 as the API does, and keeps the fault for
// [ModelServer.Faults]. [NewOpenAIServer] and [NewAnthropicServer] start one. It is safe
// for concurrent use.
type ModelServer struct {
	api    modelAPI
	server *httptest.Server
	answer func(ModelRequest) ModelAnswer
	mu     struct {
		sync.Mutex
		requests []ModelRequest
		faults   []string
		ended    int
	}
}

// A ModelRequest is one request that a [ModelServer] received.
type ModelRequest struct {
	// Path is the path of the URL, such as /v1/responses.
	Path   string
	Header http.Header
	Body   []byte
	// Number counts the valid requests before this one.
	Number int
}

// An AnswerEnd says how a [ModelServer] ends a response.
type AnswerEnd uint8

// The ends of a response.
const (
	// EndWhole ends the response in order.
	EndWhole AnswerEnd = iota
	// EndReset closes the connection without the end of the response.
	EndReset
	// EndHeld keeps the connection open until the client closes it.
	EndHeld
)

// A ModelAnswer is the response to one request.
type ModelAnswer struct {
	// Status is the status code. Zero: 200. With NoHeader no byte of a response is sent.
	Status   int
	NoHeader bool
	Header   http.Header
	// Chunks are written and flushed one after another: the events of a stream, or the
	// body of an error.
	Chunks []string
	End    AnswerEnd
}

// start starts a server of one API.
func start(api modelAPI, answer func(ModelRequest) ModelAnswer) *ModelServer {
	s := &ModelServer{api: api, answer: answer}
	s.server = httptest.NewServer(http.HandlerFunc(s.serve))
	return s
}

// A modelAPI is the part of a ModelServer that depends on its API.
type modelAPI struct {
	// basePath is the path at the end of the base URL.
	basePath string
	// requestID is the header with the ID of a request.
	requestID string
	// check returns the first fault of a request to a path.
	check func(path string, body []byte, header http.Header) error
	// invalid returns the JSON body of the answer to an invalid request.
	invalid func(message string) string
}

// URL returns the base URL: that of OpenAI ends in /v1.
func (s *ModelServer) URL() string { return s.server.URL + s.api.basePath }

// Close ends open connections and stops the server.
func (s *ModelServer) Close() {
	s.server.CloseClientConnections()
	s.server.Close()
}

// Requests returns the valid requests so far, in order.
func (s *ModelServer) Requests() []ModelRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.mu.requests)
}

// Faults returns the faults of the invalid requests so far, in order.
func (s *ModelServer) Faults() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.mu.faults)
}

// Ended returns the number of responses that have ended, in order or not.
func (s *ModelServer) Ended() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.ended
}

// serve answers one request.
func (s *ModelServer) serve(w http.ResponseWriter, r *http.Request) {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.mu.ended++
	}()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	request := ModelRequest{Path: r.URL.Path, Header: r.Header.Clone(), Body: body}
	w.Header().Set(s.api.requestID, "req_local")
	if fault := s.check(r.Method, request); fault != nil {
		s.mu.Lock()
		s.mu.faults = append(s.mu.faults, fault.Error())
		s.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		io.WriteString(w, s.api.invalid(fault.Error()))
		return
	}
	s.mu.Lock()
	request.Number = len(s.mu.requests)
	s.mu.requests = append(s.mu.requests, request)
	s.mu.Unlock()
	s.answer(request).write(w, r)
}

// write sends the answer.
func (a ModelAnswer) write(w http.ResponseWriter, r *http.Request) {
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
	case EndWhole:
	case EndReset:
		panic(http.ErrAbortHandler)
	case EndHeld:
		<-r.Context().Done()
	}
}

// check returns the first fault of a request.
func (s *ModelServer) check(method string, r ModelRequest) error {
	if method != http.MethodPost {
		return fmt.Errorf("method %s is not POST", method)
	}
	if kind := r.Header.Get("Content-Type"); !strings.HasPrefix(kind, "application/json") {
		return fmt.Errorf("content type %q is not application/json", kind)
	}
	return s.api.check(r.Path, r.Body, r.Header)
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
