package anthropic

import (
	"encoding/base64"
	"encoding/json"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/theclaw/agents/internal/thinking"
	"github.com/theclaw/agents/services/runner/internal/model"
)

// opening stands first where a conversation begins with the agent's own words:
// the API wants the user to begin.
const opening = "[the messages before this one are left out]"

func (d *Driver) params(req model.Request) (sdk.MessageNewParams, []option.RequestOption, error) {
	p := sdk.MessageNewParams{Model: req.Model, MaxTokens: int64(req.MaxOutputTokens)}
	if req.Model == "" {
		return p, nil, model.Errorf(model.Config, "provider %s: no model named", d.cfg.Name)
	}
	if p.MaxTokens <= 0 {
		p.MaxTokens = DefaultMaxOutput
	}
	how := d.cfg.Thinking
	if req.Thinking != "" {
		how = d.asked(req.Thinking)
	}
	think := how != (thinking.Option{}) && mayThink(req.Messages)
	var options []option.RequestOption
	switch {
	case think && how.Adaptive:
		options = append(options, option.WithJSONSet("thinking", map[string]any{"type": "adaptive", "display": "summarized"}))
	case think:
		// Set as JSON: the SDK writes warnings about this form to stderr.
		options = append(options, option.WithJSONSet("thinking", map[string]any{"type": "enabled", "budget_tokens": how.Tokens}))
		p.MaxTokens += int64(how.Tokens) // they are a part of it
	case req.Temperature != nil: // thinking takes none
		p.Temperature = sdk.Float(*req.Temperature)
	}
	if req.System != "" {
		p.System = []sdk.TextBlockParam{{Text: req.System, CacheControl: sdk.NewCacheControlEphemeralParam()}}
	}
	var err error
	if p.Tools, err = tools(req.Tools); err != nil {
		return p, nil, err
	}
	if n := len(p.Tools); n > 0 && len(p.System) == 0 {
		p.Tools[n-1].OfTool.CacheControl = sdk.NewCacheControlEphemeralParam()
	}
	if p.Messages, err = messages(req.Messages, think); err != nil {
		return p, nil, err
	}
	if len(p.Tools) > 0 { // without tools no round follows that would read it
		markLast(p.Messages)
	}
	return p, options, nil
}

func tools(list []model.Tool) ([]sdk.ToolUnionParam, error) {
	out := make([]sdk.ToolUnionParam, 0, len(list))
	for _, t := range list {
		one := &sdk.ToolParam{Name: t.Name}
		if t.Description != "" {
			one.Description = sdk.String(t.Description)
		}
		if len(t.Schema) > 0 {
			var schema map[string]any
			if err := json.Unmarshal(t.Schema, &schema); err != nil {
				return nil, &model.Error{Class: model.Config, Message: "the schema of tool " + t.Name + " is not a JSON object", Err: err}
			}
			delete(schema, "type") // always object, and the SDK's to say
			one.InputSchema.ExtraFields = schema
		}
		out = append(out, sdk.ToolUnionParam{OfTool: one})
	}
	return out, nil
}

// messages joins what the same side said one after the other: the results of
// parallel calls must stand in one message.
func messages(list []model.Message, think bool) ([]sdk.MessageParam, error) {
	var out []sdk.MessageParam
	ids := newCallIDs(list)
	say := func(role sdk.MessageParamRole, blocks ...sdk.ContentBlockParamUnion) {
		if n := len(out); n > 0 && out[n-1].Role == role {
			out[n-1].Content = append(out[n-1].Content, blocks...)
		} else if len(blocks) > 0 {
			out = append(out, sdk.MessageParam{Role: role, Content: blocks})
		}
	}
	for i, m := range list {
		switch m.Role {
		case model.RoleUser, model.RoleSystem:
			if m.Text != "" { // the API refuses empty blocks
				say(sdk.MessageParamRoleUser, sdk.NewTextBlock(m.Text))
			}
			for _, i := range m.Images {
				say(sdk.MessageParamRoleUser, sdk.NewImageBlockBase64(i.MIME, base64.StdEncoding.EncodeToString(i.Data)))
			}
		case model.RoleTool:
			result := sdk.NewToolResultBlock(ids.of(m.ToolCallID), m.Text, false)
			for _, i := range m.Images {
				image := sdk.NewImageBlockBase64(i.MIME, base64.StdEncoding.EncodeToString(i.Data))
				result.OfToolResult.Content = append(result.OfToolResult.Content, sdk.ToolResultBlockParamContentUnion{OfImage: image.OfImage})
			}
			say(sdk.MessageParamRoleUser, result)
		case model.RoleAssistant:
			blocks := ids.assistant(m, think)
			if len(out) == 0 && len(blocks) > 0 {
				say(sdk.MessageParamRoleUser, sdk.NewTextBlock(opening))
			}
			say(sdk.MessageParamRoleAssistant, blocks...)
		default:
			return nil, model.Errorf(model.Config, "message %d has the unknown role %q", i+1, m.Role)
		}
	}
	return out, nil
}

// mayThink reports whether the thinking of the tool rounds under way is there
// to be sent back: since the last word of the user each answer with calls has
// its own.
func mayThink(list []model.Message) bool {
	for i := len(list) - 1; i >= 0 && list[i].Role != model.RoleUser; i-- {
		if m := list[i]; m.Role == model.RoleAssistant && len(m.ToolCalls) > 0 {
			if _, ok := thoughts(m); !ok {
				return false
			}
		}
	}
	return true
}

// markLast has the provider cache everything up to the newest message.
func markLast(list []sdk.MessageParam) {
	if len(list) == 0 {
		return
	}
	content := list[len(list)-1].Content
	if mark := content[len(content)-1].GetCacheControl(); mark != nil {
		*mark = sdk.NewCacheControlEphemeralParam()
	}
}
