package openai

import (
	"encoding/json"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/shared"

	"github.com/theclaw/agents/services/runner/internal/model"
)

func (d *Driver) params(req model.Request) (sdk.ChatCompletionNewParams, error) {
	p := sdk.ChatCompletionNewParams{
		Model:         req.Model,
		Messages:      make([]sdk.ChatCompletionMessageParamUnion, 0, len(req.Messages)+1),
		Store:         sdk.Bool(false),
		StreamOptions: sdk.ChatCompletionStreamOptionsParam{IncludeUsage: sdk.Bool(true)},
	}
	if req.Model == "" {
		return p, model.Errorf(model.Config, "provider %s: no model named", d.cfg.Name)
	}
	if req.MaxOutputTokens > 0 {
		p.MaxCompletionTokens = sdk.Int(int64(req.MaxOutputTokens))
	}
	if req.Temperature != nil {
		p.Temperature = sdk.Float(*req.Temperature)
	}
	if req.System != "" {
		p.Messages = append(p.Messages, sdk.SystemMessage(req.System))
	}
	for i, m := range req.Messages {
		switch m.Role {
		case model.RoleSystem:
			p.Messages = append(p.Messages, sdk.SystemMessage(m.Text))
		case model.RoleUser:
			p.Messages = append(p.Messages, sdk.UserMessage(m.Text))
		case model.RoleTool:
			p.Messages = append(p.Messages, sdk.ToolMessage(m.Text, m.ToolCallID))
		case model.RoleAssistant:
			// Endpoints refuse an assistant message that holds nothing.
			if m.Text != "" || len(m.ToolCalls) > 0 {
				p.Messages = append(p.Messages, d.assistant(m))
			}
		default:
			return p, model.Errorf(model.Config, "message %d has the unknown role %q", i+1, m.Role)
		}
	}
	for _, t := range req.Tools {
		f := shared.FunctionDefinitionParam{Name: t.Name}
		if t.Description != "" {
			f.Description = sdk.String(t.Description)
		}
		if len(t.Schema) > 0 {
			if err := json.Unmarshal(t.Schema, &f.Parameters); err != nil {
				return p, &model.Error{Class: model.Config, Message: "the schema of tool " + t.Name + " is not a JSON object", Err: err}
			}
		}
		p.Tools = append(p.Tools, sdk.ChatCompletionFunctionTool(f))
	}
	return p, nil
}

func (d *Driver) assistant(m model.Message) sdk.ChatCompletionMessageParamUnion {
	var out sdk.ChatCompletionAssistantMessageParam
	if m.Text != "" {
		out.Content.OfString = sdk.String(m.Text)
	}
	extra := extras(m)
	for i, c := range m.ToolCalls {
		arguments := string(c.Arguments)
		if arguments == "" {
			arguments = "{}"
		}
		call := &sdk.ChatCompletionMessageFunctionToolCallParam{
			ID:       c.ID,
			Function: sdk.ChatCompletionMessageFunctionToolCallFunctionParam{Name: c.Name, Arguments: arguments},
		}
		if len(extra[i]) > 0 && string(extra[i]) != "null" {
			call.SetExtraFields(map[string]any{extraContent: extra[i]})
		}
		out.ToolCalls = append(out.ToolCalls, sdk.ChatCompletionMessageToolCallUnionParam{OfFunction: call})
	}
	if d.cfg.ReplayReasoning && m.Reasoning != "" {
		out.SetExtraFields(map[string]any{"reasoning_content": m.Reasoning})
	}
	return sdk.ChatCompletionMessageParamUnion{OfAssistant: &out}
}
