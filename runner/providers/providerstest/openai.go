package providerstest

import (
	"fmt"
	"net/http"
)

// NewOpenAIServer starts a server of the two formats of OpenAI: POST /v1/chat/completions
// and POST /v1/responses, both as streams. It answers each valid request with the result
// of answer, which may be called concurrently. The caller closes the server.
func NewOpenAIServer(answer func(ModelRequest) ModelAnswer) *ModelServer {
	return start(modelAPI{
		basePath: "/v1", requestID: "X-Request-Id", check: checkOpenAI,
		invalid: func(message string) string { return openAIErrorBody("invalid_request", message) },
	}, answer)
}

// OpenAIFailure returns the answer of a request that fails with a status and an error of
// the API.
func OpenAIFailure(status int, code, message string) ModelAnswer {
	return ModelAnswer{Status: status, Header: http.Header{"Content-Type": {"application/json"}}, Chunks: []string{openAIErrorBody(code, message)}}
}

// openAIErrorBody returns the JSON body of an error of the API.
func openAIErrorBody(code, message string) string {
	return encodeWire(map[string]any{"error": map[string]any{"message": message, "type": "invalid_request_error", "param": nil, "code": code}})
}

// checkOpenAI returns the first fault of a request to a path.
func checkOpenAI(path string, body []byte, _ http.Header) error {
	switch path {
	case "/v1/chat/completions":
		return CheckOpenAIChat(body)
	case "/v1/responses":
		return CheckOpenAIResponses(body)
	}
	return fmt.Errorf("unknown path %s", path)
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
