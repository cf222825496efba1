package agenttest

import (
	"cmp"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A Model is a server on loopback that agents take for the service of their model. It
// asks the agent to use one tool after another, and then ends the conversation.
// It speaks the Anthropic messages, the OpenAI responses, the OpenAI chat completions
// and the Gemini interface, each only as far as agents need it.
type Model struct {
	// URL has no path; the interfaces of OpenAI are below /v1.
	URL  string
	Port int

	mu       sync.Mutex
	steps    []Step
	results  []string
	requests []string
	tools    []string
}

// A Step is one use of a tool.
type Step struct {
	// Tool is how the name of the tool ends; empty is the agent's shell.
	Tool string
	// Command is what the shell runs.
	Command string
	// Input are the arguments of the tool. To those of a shell they are added.
	Input map[string]any
}

// NewModel starts a model that has the agent run these commands. It ends with the test.
func NewModel(t testing.TB, commands ...string) *Model {
	t.Helper()
	m, end := serve(nil, asSteps(commands))
	t.Cleanup(end)
	return m
}

// NewScript starts a model that has the agent use these tools. It ends with the test. The
// listener may be in another network namespace; nil is a new one in this.
func NewScript(t testing.TB, l net.Listener, steps ...Step) *Model {
	t.Helper()
	m, end := serve(l, steps)
	t.Cleanup(end)
	return m
}

// Serve starts a model that has the agent run these commands, until it is ended.
func Serve(commands ...string) (m *Model, end func()) { return serve(nil, asSteps(commands)) }

func serve(l net.Listener, steps []Step) (m *Model, end func()) {
	m = &Model{steps: steps}
	s := httptest.NewUnstartedServer(m)
	if l != nil {
		s.Listener.Close()
		s.Listener = l
	}
	s.Start()
	m.URL, m.Port = s.URL, s.Listener.Addr().(*net.TCPAddr).Port
	return m, s.Close
}

func asSteps(commands []string) []Step {
	var steps []Step
	for _, c := range commands {
		steps = append(steps, Step{Command: c})
	}
	return steps
}

// Play begins another conversation, in which the agent uses these tools.
func (m *Model) Play(steps ...Step) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.steps, m.results, m.requests = steps, nil, nil
}

// Results are what the agent told the model about each step, in their order.
func (m *Model) Results() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.results)
}

// Requests are the methods and paths that were asked for, for messages of tests that fail.
func (m *Model) Requests() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.requests)
}

// Tools are the names of the tools that the agent has offered.
func (m *Model) Tools() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.tools)
}

// ServeHTTP answers a request. It keeps no state of the conversation: how many results a
// request carries says which command is next. So what agents ask on the side, such as for
// a title, disturbs nothing.
func (m *Model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	m.requests = append(m.requests, r.Method+" "+r.URL.Path)
	m.mu.Unlock()
	path := r.URL.Path
	if r.Method == http.MethodGet && strings.HasSuffix(path, "/models") {
		answer(w, object{"object": "list", "data": []any{object{"id": "scripted", "object": "model", "created": 1, "owned_by": "test"}}, "models": []any{}})
		return
	}
	req, err := body(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	switch {
	case r.Method != http.MethodPost:
		http.NotFound(w, r)
	case strings.HasSuffix(path, "/messages"):
		m.messages(w, req)
	case strings.HasSuffix(path, "/count_tokens"):
		answer(w, object{"input_tokens": 10})
	case strings.HasSuffix(path, "/responses"):
		m.responses(w, req)
	case strings.HasSuffix(path, "/chat/completions"):
		m.chat(w, req)
	case strings.HasSuffix(path, ":streamGenerateContent"), strings.HasSuffix(path, ":generateContent"):
		m.gemini(w, req, strings.HasSuffix(path, ":streamGenerateContent"))
	case strings.HasSuffix(path, ":countTokens"):
		answer(w, object{"totalTokens": 10})
	default:
		http.NotFound(w, r)
	}
}

func body(r *http.Request) (object, error) {
	var in io.Reader = r.Body
	switch enc := r.Header.Get("Content-Encoding"); enc {
	case "":
	case "gzip":
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, err
		}
		in = z
	default:
		return nil, fmt.Errorf("a body in %s", enc)
	}
	data, err := io.ReadAll(in)
	if err != nil || len(data) == 0 {
		return object{}, err
	}
	var req object
	return req, json.Unmarshal(data, &req)
}

// A call is a use of a tool that the model asks for.
type call struct {
	id, tool string
	input    object
}

// next notes the results of the steps so far, and returns the call of the next one.
// It is nil at the end, and for a request without a shell among its tools.
func (m *Model) next(tools map[string]object, results []string) *call {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(results) > len(m.results) {
		m.results = slices.Clone(results)
	}
	n := len(results)
	shell := shellOf(tools)
	if shell == "" || n >= len(m.steps) {
		return nil
	}
	m.tools = slices.Sorted(maps.Keys(tools))
	step := &m.steps[n]
	c := &call{id: fmt.Sprintf("call_%d", n+1), tool: shell, input: object{}}
	if step.Tool == "" {
		c.input = inputOf(tools[shell], step.Command)
	} else if i := slices.IndexFunc(m.tools, func(name string) bool { return strings.HasSuffix(name, step.Tool) }); i >= 0 {
		c.tool = m.tools[i]
	} else {
		c.tool = step.Tool // the agent tells the model that it has no such tool
	}
	maps.Copy(c.input, step.Input)
	return c
}

// shells are the names that agents have for the tool that runs a command.
var shells = []string{"Bash", "bash", "exec_command", "shell_command", "shell", "run_shell_command", "run_commands", "execute_command", "run_terminal_command"}

func shellOf(tools map[string]object) string {
	for _, name := range shells {
		if _, ok := tools[name]; ok {
			return name
		}
	}
	return ""
}

// inputOf are the arguments of a shell, as its schema wants them.
func inputOf(schema object, command string) object {
	properties := dig[object](schema, "properties")
	key := "command"
	for _, k := range []string{"command", "cmd", "commands"} {
		if _, ok := properties[k]; ok {
			key = k
			break
		}
	}
	input := object{key: command}
	if typ := fmt.Sprint(dig[any](properties, key, "type")); strings.Contains(typ, "array") {
		input[key] = []string{"bash", "-lc", command}
		if key == "commands" {
			input[key] = []string{command}
		}
	}
	for _, r := range dig[[]any](schema, "required") {
		name, _ := r.(string)
		if _, ok := input[name]; ok {
			continue
		}
		switch dig[string](properties, name, "type") {
		case "boolean":
			input[name] = false
		case "number", "integer":
			input[name] = 1
		case "array":
			input[name] = []any{}
		case "object":
			input[name] = object{}
		default:
			input[name] = "scripted"
		}
	}
	return input
}

type object = map[string]any

// dig returns what is below these keys, or the zero value if it is of another type.
func dig[T any](v any, keys ...string) T {
	for _, k := range keys {
		o, _ := v.(object)
		v = o[k]
	}
	t, _ := v.(T)
	return t
}

// texts are all strings in a value, one on each line.
func texts(v any) string {
	var out []string
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			out = append(out, v)
		case []any:
			for _, e := range v {
				walk(e)
			}
		case object:
			for _, k := range slices.Sorted(maps.Keys(v)) {
				walk(v[k])
			}
		}
	}
	walk(v)
	return strings.Join(out, "\n")
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // an agent that has gone is not asked again
}

// stream sends events. Those with a type are named after it.
func stream(w http.ResponseWriter, events ...object) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range events {
		if name := dig[string](e, "type"); name != "" {
			fmt.Fprintf(w, "event: %s\n", name)
		}
		fmt.Fprintf(w, "data: %s\n\n", encode(e))
	}
}

func encode(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // only maps, strings and numbers are encoded
	}
	return string(data)
}

const farewell = "done"

// messages is the interface of Anthropic.
func (m *Model) messages(w http.ResponseWriter, req object) {
	tools, results := map[string]object{}, []string(nil)
	for _, t := range dig[[]any](req, "tools") {
		tools[dig[string](t, "name")] = dig[object](t, "input_schema")
	}
	for _, msg := range dig[[]any](req, "messages") {
		for _, b := range dig[[]any](msg, "content") {
			if dig[string](b, "type") == "tool_result" {
				results = append(results, texts(dig[any](b, "content")))
			}
		}
	}
	block, delta, stop := object{"type": "text", "text": ""}, object{"type": "text_delta", "text": farewell}, "end_turn"
	if c := m.next(tools, results); c != nil {
		block = object{"type": "tool_use", "id": "toolu_" + c.id, "name": c.tool, "input": object{}}
		delta, stop = object{"type": "input_json_delta", "partial_json": encode(c.input)}, "tool_use"
	}
	message := object{"id": "msg_1", "type": "message", "role": "assistant", "model": cmp.Or(dig[string](req, "model"), "scripted"), "content": []any{},
		"stop_reason": nil, "stop_sequence": nil, "usage": object{"input_tokens": 10, "output_tokens": 5}}
	if !dig[bool](req, "stream") {
		message["content"], message["stop_reason"] = []any{object{"type": "text", "text": farewell}}, "end_turn"
		answer(w, message)
		return
	}
	stream(w,
		object{"type": "message_start", "message": message},
		object{"type": "content_block_start", "index": 0, "content_block": block},
		object{"type": "content_block_delta", "index": 0, "delta": delta},
		object{"type": "content_block_stop", "index": 0},
		object{"type": "message_delta", "delta": object{"stop_reason": stop, "stop_sequence": nil}, "usage": object{"output_tokens": 5}},
		object{"type": "message_stop"})
}

// spaced is between the name of a server of Codex, which is a tool with tools in it, and that of the tool.
const spaced = "/"

// responses is the newer interface of OpenAI.
func (m *Model) responses(w http.ResponseWriter, req object) {
	tools, results := map[string]object{}, []string(nil)
	for _, t := range dig[[]any](req, "tools") {
		if name := dig[string](t, "name"); name != "" {
			tools[name] = dig[object](t, "parameters")
		}
		for _, inner := range dig[[]any](t, "tools") { // of a server
			tools[dig[string](t, "name")+spaced+dig[string](inner, "name")] = dig[object](inner, "parameters")
		}
	}
	for _, i := range dig[[]any](req, "input") {
		if strings.HasSuffix(dig[string](i, "type"), "_output") {
			results = append(results, texts(dig[any](i, "output")))
		}
	}
	item := object{"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
		"content": []any{object{"type": "output_text", "text": farewell, "annotations": []any{}}}}
	if c := m.next(tools, results); c != nil {
		item = object{"type": "function_call", "id": "fc_" + c.id, "call_id": c.id, "name": c.tool, "arguments": encode(c.input), "status": "completed"}
		if space, name, ok := strings.Cut(c.tool, spaced); ok {
			item["namespace"], item["name"] = space, name
		}
	}
	begun := object{"id": "resp_1", "object": "response", "created_at": 1, "model": dig[string](req, "model"), "status": "in_progress", "output": []any{}}
	done := maps.Clone(begun)
	done["status"], done["output"] = "completed", []any{item}
	done["usage"] = object{"input_tokens": 10, "input_tokens_details": object{"cached_tokens": 0}, "output_tokens": 5,
		"output_tokens_details": object{"reasoning_tokens": 0}, "total_tokens": 15}
	if s, ok := req["stream"].(bool); ok && !s {
		answer(w, done)
		return
	}
	stream(w,
		object{"type": "response.created", "response": begun},
		object{"type": "response.output_item.added", "output_index": 0, "item": item},
		object{"type": "response.output_item.done", "output_index": 0, "item": item},
		object{"type": "response.completed", "response": done})
}

// chat is the interface of OpenAI that most other services copy.
func (m *Model) chat(w http.ResponseWriter, req object) {
	tools, results := map[string]object{}, []string(nil)
	for _, t := range dig[[]any](req, "tools") {
		tools[dig[string](t, "function", "name")] = dig[object](t, "function", "parameters")
	}
	for _, msg := range dig[[]any](req, "messages") {
		if dig[string](msg, "role") == "tool" {
			results = append(results, texts(dig[any](msg, "content")))
		}
	}
	message, finish := object{"role": "assistant", "content": farewell}, "stop"
	if c := m.next(tools, results); c != nil {
		finish = "tool_calls"
		message = object{"role": "assistant", "content": nil, "tool_calls": []any{object{"index": 0, "id": c.id, "type": "function",
			"function": object{"name": c.tool, "arguments": encode(c.input)}}}}
	}
	reply := object{"id": "chat_1", "created": 1, "model": dig[string](req, "model")}
	usage := object{"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
	if !dig[bool](req, "stream") {
		reply["object"], reply["usage"] = "chat.completion", usage
		reply["choices"] = []any{object{"index": 0, "message": message, "finish_reason": finish}}
		answer(w, reply)
		return
	}
	reply["object"] = "chat.completion.chunk"
	reply["choices"] = []any{object{"index": 0, "delta": message, "finish_reason": nil}}
	last := maps.Clone(reply)
	last["choices"], last["usage"] = []any{object{"index": 0, "delta": object{}, "finish_reason": finish}}, usage
	stream(w, reply, last)
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// gemini is the interface of Google.
func (m *Model) gemini(w http.ResponseWriter, req object, streams bool) {
	tools, results := map[string]object{}, []string(nil)
	for _, t := range dig[[]any](req, "tools") {
		for _, d := range dig[[]any](t, "functionDeclarations") {
			schema := dig[object](d, "parametersJsonSchema")
			if schema == nil {
				schema = dig[object](d, "parameters")
			}
			tools[dig[string](d, "name")] = schema
		}
	}
	for _, c := range dig[[]any](req, "contents") {
		for _, p := range dig[[]any](c, "parts") {
			if r := dig[object](p, "functionResponse"); r != nil {
				results = append(results, texts(r["response"]))
			}
		}
	}
	part := object{"text": farewell}
	if c := m.next(tools, results); c != nil {
		part = object{"functionCall": object{"name": c.tool, "args": c.input}}
	} else if dig[string](req, "generationConfig", "responseMimeType") == "application/json" {
		// Which model to use, and who speaks next.
		part = object{"text": encode(object{"reasoning": "scripted", "next_speaker": "user", "model_choice": "flash", "complexity_reasoning": "scripted", "complexity_score": 1})}
	}
	reply := object{"candidates": []any{object{"content": object{"role": "model", "parts": []any{part}}, "finishReason": "STOP", "index": 0}},
		"usageMetadata": object{"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}, "modelVersion": "scripted", "responseId": "r1"}
	if streams {
		stream(w, reply)
		return
	}
	answer(w, reply)
}
