package main

import (
	"context"
	"encoding/json"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// push puts the message into the inbox and answers its id. What it answers is on
// disk; with a key that was used before it is the id of the first push.
func push(ctx context.Context, threads registryv1.ThreadServiceClient, q question) (int64, error) {
	content, err := json.Marshal(map[string]string{"text": q.text})
	if err != nil {
		return 0, err
	}
	r, err := threads.PushEvents(ctx, &registryv1.PushEventsRequest{
		Thread: &registryv1.ThreadRef{AgentId: q.agent, ThreadId: "inbox"}, IdempotencyKey: q.key,
		Events: []*registryv1.NewEvent{{
			Source: "external:console:ask:dm:" + q.name + ":" + q.name, Type: "message", Content: string(content),
		}},
	})
	if err != nil {
		return 0, err
	}
	return r.GetEventIds()[0], nil
}

// await asks for the message's turn until it has its fate. One call waits a
// bounded time, so that a proxy in between does not cut it.
func await(ctx context.Context, turns registryv1.TurnServiceClient, agent string, id int64) (*registryv1.Turn, error) {
	for {
		r, err := turns.GetTurn(ctx, &registryv1.GetTurnRequest{AgentId: agent, InboxId: id, Wait: durationpb.New(20 * time.Second)})
		if err != nil {
			return nil, err
		}
		if r.GetTurn().GetFate() != registryv1.Fate_FATE_UNSPECIFIED {
			return r.GetTurn(), nil
		}
	}
}
