package chat

import (
	"fmt"
	"io"
	"strconv"
	"unicode/utf16"
)

func itoa(n int) string { return strconv.Itoa(n) }

// chars counts as JavaScript does.
func chars(s string) int { return len(utf16.Encode([]rune(s))) }

// chat is one call: rounds of the model and its tools, then the session.
func (p *program) chat() error {
	v, err := p.choose()
	if err != nil {
		return err
	}
	key, err := p.key(v)
	if err != nil {
		return err
	}
	model := p.o.model
	if model == "" {
		model = v.DefaultModel
	}
	if p.o.dryRun {
		fmt.Fprintf(p.stderr, "{\n  \"provider\": %q,\n  \"model\": %q\n}\n", v.Name, model)
		return nil
	}
	system, input, err := p.texts()
	if err != nil {
		return err
	}
	before, err := load(p.o.session)
	if err != nil {
		return err
	}
	var fresh []message
	had := len(before) > 0 && before[0].Role == "system"
	if had {
		before = before[1:]
	}
	// A question without an answer at the end is replaced, and was written before.
	if n := len(before); n > 0 && before[n-1].Role == "user" {
		before[n-1].Content = input
	} else {
		fresh = append(fresh, message{Role: "user", Content: input})
	}
	if system != "" {
		first := message{Role: "system", Content: system}
		before = append([]message{first}, before...)
		if !had {
			fresh = append([]message{first}, fresh...)
		}
	}
	sent := append(before, fresh[min(len(fresh), boolInt(system != "" && !had)):]...)

	tools := newBench()
	defer tools.close()
	for turn := 1; ; turn++ {
		offer := turn < p.o.maxTurns
		if !offer {
			fmt.Fprintln(p.stderr, "[Info] Approaching tool-call turn limit. Requesting final text response from model.")
		}
		p.event("start", struct {
			Provider    string `json:"provider"`
			Model       string `json:"model"`
			Stream      bool   `json:"stream"`
			Messages    int    `json:"messages"`
			SystemChars int    `json:"systemChars"`
			UserChars   int    `json:"userChars"`
			Tools       int    `json:"tools"`
		}{v.Name, model, p.o.stream, len(sent), chars(system), chars(input), boolInt(offer)})
		a, err := p.ask(v, key, model, sent, offer)
		if err != nil {
			return err
		}
		p.event("complete", map[string]any{"finishReason": a.finish})
		said := message{Role: "assistant", Content: a.text, ToolCalls: a.calls}
		sent, fresh = append(sent, said), append(fresh, said)
		if len(a.calls) == 0 {
			break
		}
		for _, c := range a.calls {
			p.event("tool_call", struct {
				Name      string `json:"name"`
				Arguments any    `json:"arguments"`
			}{c.Name, c.Arguments})
			result := tools.run(c)
			p.event("tool_result", result)
			told := message{Role: "tool", Name: c.Name, ToolCallID: c.ID, Content: string(encode(result))}
			sent, fresh = append(sent, told), append(fresh, told)
		}
	}
	if p.o.session == "" || p.o.noAppend {
		return nil
	}
	return save(p.o.session, fresh)
}

// texts are the system text and the message.
func (p *program) texts() (system, input string, err error) {
	system, input = p.o.system, p.o.prompt
	if p.o.systemFile != "" {
		if system, err = readFile(p.o.systemFile); err != nil {
			return "", "", err
		}
	}
	switch {
	case p.o.inputFile != "":
		input, err = readFile(p.o.inputFile)
	case input == "":
		b, _ := io.ReadAll(p.stdin)
		input = string(b)
	}
	return system, input, err
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
