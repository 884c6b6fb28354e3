// Package ask implements the tool ask_user, which asks the person that the agent talks to and
// waits for the answer.
//
//	row under the key of the call --> message to the peer --> wait --> message of the peer joins --> result
//	(RequestQuestion)                 (call:ask)               |       (a member of the turn)
//	                                                           +--> an owner or a button answers, it expires or is canceled
//
// Each step before the result has a key, so after a crash at any instant the same call asks the
// same question, sends no second message, and finds the answer that was given meanwhile. The
// first answer stands; the registry decides which it is. While the call waits, its turn holds
// no slot ([toolset.Waits]).
//
// It gives no permission: that is an approval. It is a package of its own because each tool is.
package ask

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/thread"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/registrycall"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// Name of the tool.
const Name = "ask_user"

const (
	maxText    = 4096 // bytes, of a question
	maxOptions = 10
	maxOption  = 200 // bytes
)

// Questions is the part of the registry's QuestionService that the tool needs.
type Questions interface {
	RequestQuestion(ctx context.Context, in *registrypb.RequestQuestionRequest, opts ...grpc.CallOption) (*registrypb.RequestQuestionResponse, error)
	AnswerQuestion(ctx context.Context, in *registrypb.AnswerQuestionRequest, opts ...grpc.CallOption) (*registrypb.AnswerQuestionResponse, error)
}

// Tool implements [toolset.Tool].
type Tool struct{ Questions Questions }

// Spec implements [toolset.Tool].
func (Tool) Spec() toolset.Spec {
	return toolset.Spec{
		Name: Name,
		Description: "Asks the person you talk to a question and waits for the answer, which may take long. " +
			"Use it when you cannot go on without it; it gives you no permission for anything.",
		Schema: json.RawMessage(`{"type":"object","properties":{"question":{"type":"string","description":"the question, complete in itself"},` +
			`"options":{"type":"array","items":{"type":"string"},"description":"answers to choose from, at most 10"},` +
			`"allow_text":{"type":"boolean","description":"whether an answer may be none of the options; true when missing"}},"required":["question"]}`),
		Needs: toolset.Peer | toolset.Person, Summary: toolset.Summarize("question"),
	}
}

// Class implements [toolset.Tool]: a call that is made again finds its own question.
func (Tool) Class(toolset.Call) toolset.Class { return toolset.Idempotent }

// Run implements [toolset.Tool].
func (t Tool) Run(ctx context.Context, c toolset.Call) toolset.Result {
	req, problem := request(c)
	if problem != "" {
		return toolset.Failed(problem + ": nothing was asked")
	}
	if c.Place.Waits == nil {
		return toolset.Failed("no person is here to be asked")
	}
	q, err := t.ask(ctx, c, req)
	if err == nil && q.GetState() == registrypb.QuestionState_QUESTION_STATE_PENDING {
		if err = c.Place.Waits.Say(ctx, c, "ask", words(q), q.GetQuestionId()); err == nil {
			closed := c.Prompted(toolset.Prompt{Kind: toolset.PromptQuestion, ID: q.GetQuestionId(), Text: words(q)})
			err = c.Place.Wait(ctx, func(ctx context.Context) (err error) {
				q, err = t.wait(ctx, c, req, q)
				return err
			})
			closed(end(q, err))
		}
	}
	if _, ofMessage := thread.KeyID(q.GetBy()); err == nil && ofMessage {
		err = c.Place.Waits.Join(ctx, c, q.GetBy())
	}
	switch {
	case err != nil:
		return toolset.Failed("the question could not be asked: " + fault.From(err).What)
	case q.GetState() == registrypb.QuestionState_QUESTION_STATE_ANSWERED:
		answer, err := json.Marshal(map[string]string{"answer": q.GetAnswer()})
		if err != nil {
			return toolset.Failed("the answer cannot be encoded")
		}
		return toolset.Result{JSON: answer}
	case q.GetState() == registrypb.QuestionState_QUESTION_STATE_CANCELED:
		return toolset.Result{Text: "the question was canceled before there was an answer"}
	}
	return toolset.Result{Text: "no answer within " + config.Duration(req.GetLife().AsDuration())}
}

// end is how a wait has ended.
func end(q *registrypb.Question, err error) string {
	switch {
	case err != nil:
		return toolset.WaitInterrupted
	case q.GetState() == registrypb.QuestionState_QUESTION_STATE_ANSWERED:
		return toolset.WaitAnswered
	case q.GetState() == registrypb.QuestionState_QUESTION_STATE_EXPIRED:
		return toolset.WaitExpired
	}
	return toolset.WaitRefused
}

// request reads the arguments of a call; problem is for the model.
func request(c toolset.Call) (req *registrypb.RequestQuestionRequest, problem string) {
	var a struct {
		Question  string   `json:"question"`
		Options   []string `json:"options"`
		AllowText *bool    `json:"allow_text"`
	}
	if json.Unmarshal(c.Args, &a) != nil {
		return nil, "the arguments are not understood: question is a string, options are strings, allow_text is true or false"
	}
	switch a.Question = strings.TrimSpace(a.Question); {
	case a.Question == "":
		return nil, "question is missing"
	case len(a.Question) > maxText:
		return nil, fmt.Sprintf("question has %d bytes, and %d are the most", len(a.Question), maxText)
	case len(a.Options) > maxOptions:
		return nil, fmt.Sprintf("%d options are too many, and %d are the most", len(a.Options), maxOptions)
	case a.AllowText != nil && !*a.AllowText && len(a.Options) == 0:
		return nil, "allow_text is false and there are no options"
	}
	for n, o := range a.Options {
		if o = strings.TrimSpace(o); o == "" || len(o) > maxOption {
			return nil, fmt.Sprintf("option %d is empty, or longer than %d bytes", n+1, maxOption)
		}
		a.Options[n] = o
	}
	life := c.Place.Config.GetQuestionTimeout()
	if life.AsDuration() <= 0 {
		life = durationpb.New(config.Default().Tools.QuestionTimeout)
	}
	return &registrypb.RequestQuestionRequest{
		AgentId: c.Place.AgentID, ThreadId: c.Place.ThreadID, Key: c.Key, Text: a.Question, Options: a.Options,
		AllowText: a.AllowText == nil || *a.AllowText, Life: life,
	}, ""
}

// words are what the peer reads.
func words(q *registrypb.Question) string {
	var b strings.Builder
	b.WriteString(q.GetText())
	for n, o := range q.GetOptions() {
		fmt.Fprintf(&b, "\n%d. %s", n+1, o)
	}
	return b.String()
}

// ask makes one call, which waits as long as req says.
func (t Tool) ask(ctx context.Context, c toolset.Call, req *registrypb.RequestQuestionRequest) (*registrypb.Question, error) {
	r, err := registrycall.Call(ctx, c.Place.Trusted, func(ctx context.Context) (*registrypb.RequestQuestionResponse, error) {
		ctx, cancel := context.WithTimeout(ctx, req.GetWait().AsDuration()+toolset.AnswerTimeout)
		defer cancel()
		return t.Questions.RequestQuestion(ctx, req)
	})
	return r.GetQuestion(), err
}

// wait waits until the question has ended, and offers it the messages of the peer meanwhile. The
// turn waits inside its call to the registry, which such a message interrupts: with the stack of a
// second goroutine that makes the call, a wait would need half as much memory again.
func (t Tool) wait(ctx context.Context, c toolset.Call, req *registrypb.RequestQuestionRequest, q *registrypb.Question) (*registrypb.Question, error) {
	req.Wait = durationpb.New(toolset.AnswerWait)
	for after := q.GetAfterId(); ; {
		replies, _ := c.Place.Waits.Replies(after)
		for _, r := range replies {
			after = r.ID
			taken, err := t.offer(ctx, c, q, r)
			if err != nil {
				return nil, err
			}
			if taken {
				return t.ask(ctx, c, req)
			}
		}
		waiting, interrupt := context.WithCancel(ctx)
		go func() {
			awaitReply(waiting, c.Place.Waits, after)
			interrupt()
		}()
		now, err := t.ask(waiting, c, req)
		interrupted := waiting.Err() != nil && ctx.Err() == nil
		interrupt()
		if err != nil && !interrupted {
			return nil, err
		}
		if err == nil && now.GetState() != registrypb.QuestionState_QUESTION_STATE_PENDING {
			return now, nil
		}
	}
}

// awaitReply waits until the peer has written something behind the message after.
func awaitReply(ctx context.Context, w toolset.Waits, after int64) {
	for {
		replies, changed := w.Replies(after)
		if len(replies) > 0 {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// offer reports whether a message of the peer was the answer. Any other stays what it is: the
// next message of its conversation.
func (t Tool) offer(ctx context.Context, c toolset.Call, q *registrypb.Question, r toolset.Reply) (taken bool, err error) {
	if !c.Place.Waits.Hold(r) {
		return false, nil
	}
	defer func() {
		if !taken {
			c.Place.Waits.Release(r)
		}
	}()
	_, err = registrycall.Call(ctx, c.Place.Trusted, func(ctx context.Context) (*registrypb.AnswerQuestionResponse, error) {
		ctx, cancel := context.WithTimeout(ctx, toolset.AnswerTimeout)
		defer cancel()
		return t.Questions.AnswerQuestion(ctx, &registrypb.AnswerQuestionRequest{QuestionId: q.GetQuestionId(), Answer: r.Text, EventKey: r.Key})
	})
	switch f := fault.From(err); {
	case err == nil:
		return true, nil
	case f.Reason == fault.AnswerInvalid:
		return false, c.Place.Waits.Say(ctx, c, "hint", "Please "+f.Fix+".", "")
	case f.Reason == fault.NotAsked, f.Reason == fault.QuestionClosed, f.Code == codes.InvalidArgument:
		return false, nil
	}
	return false, err
}
