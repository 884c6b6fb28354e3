package feed

import (
	"context"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/internal/pause"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// QuestionChange reports that the agent asks the peer a question, or that one has ended.
type QuestionChange struct{ Question *registry.Question }

// Questions reports every question of the agent to the peer, also those that wait already, and
// the end of each. A registry that was away reports again what waits.
func (s *Source) Questions(ctx context.Context) {
	for ctx.Err() == nil {
		stream, err := s.Env.Questions().WatchQuestions(ctx, &registry.WatchQuestionsRequest{})
		for err == nil {
			var r *registry.WatchQuestionsResponse
			if r, err = stream.Recv(); err == nil && r.GetQuestion().GetAgentId() == s.Agent && r.GetQuestion().GetPeer() == s.Peer.Source() {
				s.Send(QuestionChange{r.GetQuestion()})
			}
		}
		_ = pause.For(ctx, again)
	}
}

// Reply answers a question.
func (s *Source) Reply(ctx context.Context, id, text string) tea.Cmd {
	return s.bounded(ctx, func(ctx context.Context) (string, error) {
		r, err := s.Env.Questions().AnswerQuestion(ctx, &registry.AnswerQuestionRequest{QuestionId: id, Answer: text})
		if err != nil {
			return "", err
		}
		return "answered: " + ansi.Truncate(screen.Line(r.GetQuestion().GetAnswer()), gist, "…"), nil
	})
}
