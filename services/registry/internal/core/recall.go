package core

import (
	"context"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/homedb"
	"github.com/theclaw/agents/services/registry/internal/directory"
)

// Recall takes over what the last run knew of inboxes that nobody has written
// since; found is called with each agent once it is known where its inbox is.
func (c *Core) Recall(ctx context.Context, found func(*directory.Agent)) {
	known, err := c.homeDB.Inboxes(ctx)
	if err != nil {
		c.Log.Warn("nothing is known of the inboxes", "error", err)
	}
	c.Dir.Each(ctx, func(a *directory.Agent) {
		i, ok := known[a.ID]
		if ok {
			a.RecallPlace(i.Settings, i.Path)
		}
		found(a)
		if !ok || i.Head != i.Acked {
			return
		}
		if path, err := c.Dir.Path(store.Inbox(a.ID)); err == nil && directory.Stamp(path) == i.Signature {
			a.Recall(store.InboxState{Started: i.Started, Head: i.Head, Acked: i.Acked, Dead: i.Dead, LastAt: i.LastAt}, i.Signature)
		}
	})
}

// saveInboxes keeps what is known for the next start; the databases said at their end what they look like.
func (c *Core) saveInboxes() {
	var put []homedb.Inbox
	c.Dir.Each(context.Background(), func(a *directory.Agent) {
		k := a.Known()
		if !k.Loaded || k.Outbound > 0 || k.Problem != "" {
			return
		}
		sig, place := a.Place()
		put = append(put, homedb.Inbox{Agent: a.ID, Settings: sig, Path: place, Signature: a.Signature(), Started: k.Started, Head: k.Head, Acked: k.Acked, Dead: k.Dead, LastAt: a.LastAt()})
	})
	if err := c.homeDB.SaveInboxes(context.Background(), put); err != nil {
		c.Log.Warn("what is known of the inboxes is not kept", "error", err)
	}
}
