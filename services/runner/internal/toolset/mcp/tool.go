package mcp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/obs/tracing"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// tool is a tool of a server, as it was approved.
type tool struct {
	servers *Servers
	agent   string
	launch  launch
	pin     pin
}

// name is the server's.
func (t *tool) name() string { return t.launch.server.GetName() }

// Spec implements [toolset.Tool].
func (t *tool) Spec() toolset.Spec {
	cfg := t.launch.server
	s := toolset.Spec{Name: t.pin.offered, Description: t.pin.Description, Schema: t.pin.Schema, Server: t.name(), External: true}
	if s.Description == "" {
		s.Description = fmt.Sprintf("The tool %s of the MCP server %s.", t.pin.Name, t.name())
	}
	if cfg.GetUrl() != "" || cfg.GetNetwork() || cfg.GetUnconfined() || len(cfg.GetNetworkHosts()) > 0 {
		s.Needs = toolset.Network
	}
	return s
}

// Class implements [toolset.Tool].
func (t *tool) Class(toolset.Call) toolset.Class { return t.pin.class(t.launch.server) }

// unknown follows why the end of a call with an effect is not known.
const unknown = "; outcome unknown, verify before repeating"

// Run implements [toolset.Tool]. A call that may be repeated is made once more when its server ends, and again where
// a little time may help; one with an effect is made once more only where the server has begun nothing of it.
func (t *tool) Run(ctx context.Context, c toolset.Call) (r toolset.Result) {
	effect, ended := t.Class(c) == toolset.Effect, false
	toolset.Retry(ctx, t.servers.o.Wait, func(n int) bool {
		var err error
		r, err = t.attempt(ctx, c)
		if isEnd(err) && !ended && (!effect || !mayHaveBegun(err)) {
			ended = true
			r, err = t.attempt(ctx, c)
		}
		if err == nil {
			return false
		}
		unanswered, ok := errors.AsType[*unansweredError](err)
		text := t.failure(err, n)
		switch {
		case !effect:
			r = toolset.Failed(text)
		case !mayHaveBegun(err):
			r = toolset.Failed("nothing was run: " + text)
		default:
			r = toolset.Result{InDoubt: true, Text: text + unknown}
		}
		return ok && unanswered.again && !effect
	})
	return r
}

// isEnd reports whether a call has failed because its server has ended.
func isEnd(err error) bool {
	_, ok := errors.AsType[*endedError](err)
	return ok
}

// mayHaveBegun reports whether the server may have begun a call that has failed.
func mayHaveBegun(err error) bool {
	if e, ok := errors.AsType[*endedError](err); ok {
		return e.begun
	}
	e, ok := errors.AsType[*unansweredError](err)
	return !ok || e.begun
}

// failure is why a call has no result after n attempts. The text of err has no values that the server was given: to
// clean it now could join one that the server has split by characters that are not seen.
func (t *tool) failure(err error, n int) string {
	text := "server " + t.name() + ": " + err.Error()
	if isEnd(err) {
		text = fmt.Sprintf("server %s ended (%s)", t.name(), err.Error())
	}
	if n > 1 {
		text += fmt.Sprintf("; it was tried %d times", n)
	}
	return text
}

// attempt makes a call once. The error is why the server has not answered, in clean text without secrets.
func (t *tool) attempt(ctx context.Context, c toolset.Call) (toolset.Result, error) {
	// Another turn may have had the server forgotten: it is looked up each time, so that all of an agent use one.
	server := t.servers.server(t.agent, t.launch)
	x, err := t.acquire(ctx, server)
	if err != nil {
		return toolset.Failed("nothing was run: " + err.Error()), nil
	}
	r, refusal, err := t.call(ctx, server, x, c)
	answer, answered := errors.AsType[*jsonrpc.Error](err)
	switch {
	case refusal != "":
		return toolset.Failed(refusal), nil
	case err == nil:
		return t.result(r, x), nil
	case answered:
		return toolset.Failed(t.external(x, answer.Message, maxError)), nil
	}
	return toolset.Result{}, err
}

// acquire waits for the server no longer than for an answer.
func (t *tool) acquire(ctx context.Context, server *server) (*session, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, max(t.limit(), startLimit+5*time.Second), errTimeout)
	defer cancel()
	return server.acquire(ctx, t.launch)
}

func (t *tool) limit() time.Duration {
	if d := t.launch.server.GetTimeout().AsDuration(); d > 0 {
		return d
	}
	return 30 * time.Second
}

// call makes one call on a session. refusal is why nothing was run.
func (t *tool) call(ctx context.Context, server *server, x *session, c toolset.Call) (r *sdk.CallToolResult, refusal string, err error) {
	defer server.release()
	if why := x.differs(t.name(), t.pin.Name, t.pin.sha); why != "" {
		return nil, "nothing was run: " + why, nil
	}
	server.count()
	ctx, span := tracing.Child(ctx, tracing.SpanMCP)
	defer span.End()
	fault.Point("mcp:call")
	r, err = x.call(ctx, t.pin.Name, c.Args, t.limit(), c.Progress)
	fault.Point("mcp:answer")
	return r, "", err
}

// maxError bounds the text of an error, of which a result has little, in bytes.
const maxError = 3 << 10

// external is a text of the server for the model, of at most limit bytes; 0: no limit. It is cut before it is marked, so
// that both marks stay, and after the values are out, so that no part of one stays.
func (t *tool) external(x *session, text string, limit int) string {
	begin, end := toolset.External("MCP server " + t.name())
	text, _ = boundary.Text(x.sent.Without(clean(text)), limit)
	return begin + "\n" + text + "\n" + end
}

// result is what a server has answered.
func (t *tool) result(r *sdk.CallToolResult, x *session) toolset.Result {
	if r.NeedsInput() {
		return toolset.Failed("the MCP server " + t.name() + " asks for more input, which is not offered to servers")
	}
	var texts []string
	var images []toolset.Image
	hasText := false
	for _, c := range r.Content {
		if text, ok := c.(*sdk.TextContent); ok && text.Text != "" {
			hasText = true
		}
		if i, ok := c.(*sdk.ImageContent); ok && !r.IsError && len(i.Data) > 0 {
			images = append(images, toolset.Image{Data: i.Data})
		}
		if text := content(c); text != "" {
			texts = append(texts, text)
		}
	}
	if !hasText && r.StructuredContent != nil {
		texts = append(texts, string(encode(r.StructuredContent)))
	}
	text := strings.Join(texts, "\n")
	if r.IsError {
		return toolset.Failed(t.external(x, text, maxError))
	}
	return toolset.Result{Text: t.external(x, text, 0), Images: images}
}

// content is a piece of a result as text.
func content(c sdk.Content) string {
	switch c := c.(type) {
	case *sdk.TextContent:
		return c.Text
	case *sdk.ImageContent:
		return fmt.Sprintf("[%s of %d bytes]", kind(c.MIMEType, "image"), len(c.Data))
	case *sdk.AudioContent:
		return fmt.Sprintf("[%s of %d bytes, not shown]", kind(c.MIMEType, "audio"), len(c.Data))
	case *sdk.ResourceLink:
		return strings.TrimSpace(c.Name + " " + c.URI)
	case *sdk.EmbeddedResource:
		switch {
		case c.Resource == nil:
		case c.Resource.Text != "":
			return c.Resource.URI + "\n" + c.Resource.Text
		default:
			return fmt.Sprintf("%s [%s of %d bytes, not shown]", c.Resource.URI, kind(c.Resource.MIMEType, "data"), len(c.Resource.Blob))
		}
	}
	return ""
}

func kind(mime, other string) string {
	if mime == "" {
		return other
	}
	return mime
}
