package sessiontools

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
)

//go:embed todowrite.md
var todoWriteDescription string

//go:embed todoread.md
var todoReadDescription string

// todoArgs is the input of the tool todowrite.
type todoArgs struct {
	Todos []domain.Todo `json:"todos" jsonschema:"the whole list, which replaces the one before"`
}

// todoSchema is the patch of the input schema of todowrite.
const todoSchema = `{"properties":{"todos":{"type":"array","maxItems":200,"items":{"properties":{
	"content":{"pattern":"\\S","maxLength":2000,"description":"what to do"},
	"status":{"enum":["pending","in_progress","completed","cancelled"]},
	"priority":{"enum":["high","medium","low"]}}}}}}`

// maxTodo is the maximum size of the content of a task in bytes. The schema bounds it in
// characters.
const maxTodo = 2000

// todoList is the output of the tools todowrite and todoread.
type todoList struct {
	Todos []domain.Todo `json:"todos"` // not nil
}

// A todoWriteTool is the tool todowrite.
type todoWriteTool struct{ Config }

// tool returns the domain.Tool of todowrite.
func (t todoWriteTool) tool() (domain.Tool, error) {
	return domain.Make(domain.Spec[todoArgs, todoList]{
		Description: todoWriteDescription,
		Input:       domain.Constrained[todoArgs](todoSchema),
		Execute:     t.write,
		Present:     func(_ todoArgs, out domain.Encoded[todoList]) []domain.Content { return presentTodos(out) },
		AsksFirst:   true,
		Title:       func(in todoArgs) string { return count(len(in.Todos), "todo") },
	})
}

// write executes one call of todowrite. The person who is asked for permission sees the new
// list. The list is on record when write returns.
func (t todoWriteTool) write(ctx context.Context, in todoArgs, inv domain.Invocation) (todoList, error) {
	for i, todo := range in.Todos {
		if len(todo.Content) > maxTodo {
			return todoList{}, domain.Fail("Unable to update todos: entry %d has %d bytes of content: use at most %d", i+1, len(todo.Content), maxTodo)
		}
	}
	text, err := indentedJSON(in.Todos)
	if err != nil {
		return todoList{}, err
	}
	ask := permission.Ask{Action: nameTodoWrite, Resources: everyResource, Save: everyResource, Preview: permission.TextPreview(domain.PreviewCall, text)}
	if err := t.Permission.Assert(ctx, inv, ask); err != nil {
		return todoList{}, err
	}
	if err := t.Session.ReplaceTodos(ctx, inv, in.Todos); err != nil {
		return todoList{}, fmt.Errorf("replace the todos of %s: %w", inv.Session, err)
	}
	return todoList(in), nil
}

// A todoReadTool is the tool todoread.
type todoReadTool struct{ Config }

// todoReadArgs is the input of the tool todoread.
type todoReadArgs struct{}

// tool returns the domain.Tool of todoread.
func (t todoReadTool) tool() (domain.Tool, error) {
	return domain.Make(domain.Spec[todoReadArgs, todoList]{
		Description: todoReadDescription,
		Execute:     t.read,
		Present:     func(_ todoReadArgs, out domain.Encoded[todoList]) []domain.Content { return presentTodos(out) },
		Idempotent:  true,
		AsksFirst:   true,
	})
}

// read executes one call of todoread.
func (t todoReadTool) read(ctx context.Context, _ todoReadArgs, inv domain.Invocation) (todoList, error) {
	ask := permission.Ask{Action: nameTodoRead, Resources: everyResource, Save: everyResource}
	if err := t.Permission.Assert(ctx, inv, ask); err != nil {
		return todoList{}, err
	}
	todos, err := t.Session.Todos(ctx, inv.Session)
	if err != nil {
		return todoList{}, fmt.Errorf("read the todos of %s: %w", inv.Session, err)
	}
	return todoList{append([]domain.Todo{}, todos...)}, nil
}

// presentTodos renders a list for the model as indented JSON.
func presentTodos(out domain.Encoded[todoList]) []domain.Content {
	list, err := out.Value()
	if err != nil {
		return nil
	}
	text, err := indentedJSON(list.Todos)
	if err != nil {
		return nil
	}
	return []domain.Content{domain.Text(text)}
}

// count returns a number with a noun, in the plural unless the number is one.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
