package mcp_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// serveTest runs a server on standard input and output until its input ends.
func serveTest(mode string) {
	switch mode {
	case "sdk", "old":
		s := sdkServer()
		if mode == "old" {
			s.AddReceivingMiddleware(withoutDiscover)
		}
		if err := s.Run(context.Background(), &sdk.StdioTransport{}); err != nil && !errors.Is(err, context.Canceled) {
			log.Print(err)
		}
	default:
		rawServer{mode: mode}.serve()
	}
}

// withoutDiscover makes a server one of the older protocol, with initialize.
func withoutDiscover(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, r sdk.Request) (sdk.Result, error) {
		if method == "server/discover" {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "no such method"}
		}
		return next(ctx, method, r)
	}
}

type echoInput struct {
	Text string `json:"text"`
	N    int    `json:"n,omitempty"`
}

type countOutput struct {
	Count int `json:"count"`
}

// sdkServer returns a server of the SDK with tools for the tests.
func sdkServer() *sdk.Server {
	s := sdk.NewServer(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	type result = *sdk.CallToolResult
	type request = *sdk.CallToolRequest
	text := func(text string) result {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}}
	}
	sdk.AddTool(s, &sdk.Tool{Name: "echo", Description: "Echoes."}, func(_ context.Context, _ request, in echoInput) (result, any, error) {
		return text("echo " + in.Text), nil, nil
	})
	sdk.AddTool(s, &sdk.Tool{Name: "count", Description: "Counts."}, func(_ context.Context, _ request, in echoInput) (result, countOutput, error) {
		return nil, countOutput{len(in.Text)}, nil
	})
	sdk.AddTool(s, &sdk.Tool{Name: "fail"}, func(_ context.Context, _ request, in echoInput) (result, any, error) {
		return nil, nil, errors.New("it failed with " + in.Text + " " + os.Getenv("TOKEN"))
	})
	sdk.AddTool(s, &sdk.Tool{Name: "media", Description: "Shows."}, func(context.Context, request, struct{}) (result, any, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{
			&sdk.TextContent{Text: "one"}, &sdk.TextContent{Text: "two"},
			&sdk.ImageContent{Data: []byte("png"), MIMEType: "image/png"},
			&sdk.AudioContent{Data: []byte("wave"), MIMEType: "audio/wav"},
			&sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: "mem://a", Text: "inner"}},
			&sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: "mem://b", MIMEType: "x/y", Blob: []byte("blob!")}},
			&sdk.ResourceLink{URI: "mem://c", Name: "see"},
		}}, nil, nil
	})
	sdk.AddTool(s, &sdk.Tool{Name: "environ", Description: "Lists."}, func(context.Context, request, struct{}) (result, any, error) {
		return text(strings.Join(os.Environ(), "\n")), nil, nil
	})
	sdk.AddTool(s, &sdk.Tool{Name: "slow", Description: "Waits."}, func(ctx context.Context, r request, in echoInput) (result, any, error) {
		_ = os.WriteFile(in.Text+".began", nil, 0o600)
		<-ctx.Done()
		_ = os.WriteFile(in.Text, []byte("cancelled"), 0o600)
		return nil, nil, ctx.Err()
	})
	sdk.AddTool(s, &sdk.Tool{Name: "roots", Description: "Asks for roots."}, func(ctx context.Context, r request, _ struct{}) (result, any, error) {
		//lint:ignore SA1019 a server of an older protocol asks for roots
		roots, err := r.Session.ListRoots(ctx, nil)
		if err != nil {
			return nil, nil, err
		}
		return text(roots.Roots[0].URI), nil, nil
	})
	sdk.AddTool(s, &sdk.Tool{Name: "ask", Description: "Asks."}, func(ctx context.Context, r request, in echoInput) (result, any, error) {
		params := &sdk.ElicitParams{Message: "Which port? " + os.Getenv("TOKEN"), RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{
			"port": map[string]any{"type": "integer"}, "why": map[string]any{"type": "string", "enum": []string{"test", "fun"}, "enumNames": []string{"for a test", "for fun"}},
		}, "required": []string{"port"}}}
		if in.Text == "url" {
			params = &sdk.ElicitParams{Mode: "url", Message: "open", URL: "https://example.com/x", ElicitationID: "e"}
		}
		answer, err := r.Session.Elicit(ctx, params)
		if err != nil {
			return nil, nil, err
		}
		if answer.Action != "accept" {
			return nil, nil, errors.New("not accepted: " + answer.Action)
		}
		return text(fmt.Sprintf("%v %v", answer.Content["port"], answer.Content["why"])), nil, nil
	})
	sdk.AddTool(s, &sdk.Tool{Name: "change", Description: "Changes."}, func(_ context.Context, _ request, in echoInput) (result, any, error) {
		s.RemoveTools("echo")
		sdk.AddTool(s, &sdk.Tool{Name: "count", Description: "Counts " + in.Text}, func(_ context.Context, _ request, in echoInput) (result, countOutput, error) {
			return nil, countOutput{-len(in.Text)}, nil
		})
		sdk.AddTool(s, &sdk.Tool{Name: "extra", Description: "New."}, func(context.Context, request, struct{}) (result, any, error) {
			return text("new"), nil, nil
		})
		return text("changed"), nil, nil
	})
	sdk.AddTool(s, &sdk.Tool{Name: "die", Description: "Dies."}, func(context.Context, request, struct{}) (result, any, error) {
		fmt.Fprintln(os.Stderr, "dying with", os.Getenv("TOKEN"))
		os.Exit(7)
		return nil, nil, nil
	})
	sdk.AddTool(s, &sdk.Tool{Name: "wait", Description: "Waits."}, func(_ context.Context, _ request, in echoInput) (result, any, error) {
		time.Sleep(time.Duration(in.N) * time.Millisecond)
		return text("waited"), nil, nil
	})
	return s
}
