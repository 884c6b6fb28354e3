package approvals

import (
	"context"

	"github.com/theclaw/agents/internal/store"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// watch reads what waits, and what has become of it, for one watcher. A change costs the rows that
// wait, not those that have ended, which are kept for days.
type watch[M any, S comparable] struct {
	// waiting calls each with those that wait, oldest first.
	waiting func(ctx context.Context, each func(M) error) error
	// one reads the one with an id; false: it is gone.
	one   func(ctx context.Context, id string) (M, bool, error)
	id    func(M) string
	state func(M) S
	// final reports a state that does not change.
	final func(S) bool
	send  func(M) error
}

// follow sends each one that waits, and then each whose state has changed, until ctx ends.
func (w watch[M, S]) follow(ctx context.Context, wakes Wakes) error {
	sent := map[string]S{} // of those that may change
	for {
		woken, done := wakes.AwaitApproval("")
		err := w.once(ctx, sent)
		if err == nil {
			select {
			case <-woken:
			case <-wakes.Again():
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		done()
		if err != nil {
			return err
		}
	}
}

func (w watch[M, S]) once(ctx context.Context, sent map[string]S) error {
	show := func(m M) error {
		id, now := w.id(m), w.state(m)
		if was, there := sent[id]; there && was == now || !there && w.final(now) { // its time is over, which is not stored yet
			return nil
		}
		sent[id] = now
		return w.send(m)
	}
	waits := map[string]bool{}
	err := w.waiting(ctx, func(m M) error {
		waits[w.id(m)] = true
		return show(m)
	})
	if err != nil {
		return err
	}
	for id := range sent {
		if waits[id] {
			continue
		}
		m, there, err := w.one(ctx, id)
		if err != nil {
			return err
		}
		if there {
			if err := show(m); err != nil {
				return err
			}
		}
		if !there || w.final(w.state(m)) {
			delete(sent, id)
		}
	}
	return nil
}

// pages reads all pages of a list.
func pages[R any](list func(after string, limit int) ([]R, error), id func(R) string, each func(R) error) error {
	const page = 200
	for after := ""; ; {
		rows, err := list(after, page)
		if err != nil {
			return err
		}
		for _, r := range rows {
			after = id(r)
			if err := each(r); err != nil {
				return err
			}
		}
		if len(rows) < page {
			return nil
		}
	}
}

// WatchApprovals sends the questions that wait, and then each change of one.
func (s *Service) WatchApprovals(_ *registryv1.WatchApprovalsRequest, out registryv1.ApprovalService_WatchApprovalsServer) error {
	ctx := out.Context()
	return watch[*registryv1.Approval, registryv1.ApprovalState]{
		waiting: func(ctx context.Context, each func(*registryv1.Approval) error) error {
			return pages(func(after string, limit int) ([]store.Approval, error) {
				list, err := s.Approvals.Approvals(ctx, after, "", pending, limit)
				return list, s.Fault("", "", err)
			}, func(a store.Approval) string { return a.ID }, func(a store.Approval) error { return each(message(a)) })
		},
		one: func(ctx context.Context, id string) (*registryv1.Approval, bool, error) {
			a, there, err := s.Approvals.Approval(ctx, id, "", "")
			return message(a), there, s.Fault("", "", err)
		},
		id:    (*registryv1.Approval).GetApprovalId,
		state: (*registryv1.Approval).GetState,
		final: func(st registryv1.ApprovalState) bool {
			return st != registryv1.ApprovalState_APPROVAL_STATE_PENDING && st != registryv1.ApprovalState_APPROVAL_STATE_APPROVED
		},
		send: func(m *registryv1.Approval) error { return out.Send(s.shown(ctx, m)) },
	}.follow(ctx, s.Wakes)
}

// WatchQuestions sends the questions that wait, and then each change of one.
func (s *Questions) WatchQuestions(_ *registryv1.WatchQuestionsRequest, out registryv1.QuestionService_WatchQuestionsServer) error {
	ctx := out.Context()
	return watch[*registryv1.Question, registryv1.QuestionState]{
		waiting: func(ctx context.Context, each func(*registryv1.Question) error) error {
			return pages(func(after string, limit int) ([]store.Question, error) {
				list, err := s.Questions.Questions(ctx, after, "", store.QuestionPending, limit)
				return list, s.Fault("", "", err)
			}, func(q store.Question) string { return q.ID }, func(q store.Question) error { return each(questionMessage(q)) })
		},
		one: func(ctx context.Context, id string) (*registryv1.Question, bool, error) {
			q, there, err := s.Questions.Question(ctx, id, "", "")
			return questionMessage(q), there, s.Fault("", "", err)
		},
		id:    (*registryv1.Question).GetQuestionId,
		state: (*registryv1.Question).GetState,
		final: func(st registryv1.QuestionState) bool {
			return st != registryv1.QuestionState_QUESTION_STATE_PENDING
		},
		send: func(m *registryv1.Question) error {
			r := &registryv1.WatchQuestionsResponse{Question: m}
			if m.GetState() != registryv1.QuestionState_QUESTION_STATE_PENDING { // the end is shown where it was asked
				_, r.PlatformThread = origin(ctx, s.Inboxes, m.GetAgentId(), m.GetKey())
			}
			return out.Send(r)
		},
	}.follow(ctx, s.Wakes)
}
