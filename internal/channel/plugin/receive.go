package plugin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/theclaw/agents/internal/channel"
	channelv1 "github.com/theclaw/agents/proto/gen/theclaw/channel/v1"
)

const (
	// probeEvery is how often a plugin is probed while it streams.
	probeEvery = 30 * time.Second
	// maxMissed is how many probes in a row may fail.
	maxMissed = 2
	// maxPosition is the most bytes of a position.
	maxPosition = 1024
	// cursor is the name under which the position is kept.
	cursor = "position"
)

// receiver takes in the updates of one account.
type receiver struct {
	*account
	probeEvery time.Duration
}

// Receive implements [channel.Receiver].
func (r *receiver) Receive(ctx context.Context, in channel.Intake) error {
	err := r.receive(ctx, in)
	if err == nil || ctx.Err() != nil {
		return nil
	}
	return r.down(ctx, err)
}

func (r *receiver) receive(ctx context.Context, in channel.Intake) error {
	c, err := r.dial(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	d, err := r.describe(ctx, c)
	if err != nil {
		return err
	}
	if err := in.Connected(d.identity, d.name); err != nil {
		return err
	}
	position, err := in.Cursor(ctx, cursor)
	if err != nil {
		return err
	}
	if len(position) > maxPosition {
		position = "" // of another build
	}
	group, ctx := errgroup.WithContext(ctx)
	stream, err := c.Receive(ctx)
	if err == nil {
		err = stream.Send(&channelv1.ReceiveRequest{Position: position})
	}
	if err != nil && !errors.Is(err, io.EOF) { // of which Recv has the cause
		return err
	}
	a := &confirmed{in: in, changed: make(chan struct{}, 1)}
	group.Go(func() error { return a.send(ctx, stream) })
	group.Go(func() error { return r.probe(ctx, c) })
	group.Go(func() error {
		for {
			u, err := stream.Recv()
			if err != nil {
				return err
			}
			if p := u.GetPosition(); p == "" || len(p) > maxPosition {
				return &channel.Error{
					What: fmt.Sprintf("the plugin of %s sent an update whose position has %d bytes, and 1 to %d are valid", r.name, len(p), maxPosition),
					Fix:  "correct the plugin",
				}
			}
			if err := in.Take(ctx, r.update(d, u), a.taken(u.GetPosition())); err != nil {
				return err
			}
		}
	})
	return group.Wait()
}

// probe ends the stream of a plugin that does not answer, or whose platform cannot be reached.
func (r *receiver) probe(ctx context.Context, c *conn) error {
	tick := time.NewTicker(r.probeEvery)
	defer tick.Stop()
	for missed := 0; ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		within, cancel := context.WithTimeout(ctx, describeLimit)
		_, err := c.Probe(within, &channelv1.ProbeRequest{})
		cancel()
		switch code := status.Code(err); {
		case err == nil, code == codes.Unimplemented:
			missed = 0
			continue
		case ctx.Err() != nil:
			return ctx.Err()
		case code == codes.Unauthenticated, code == codes.Aborted:
			return err
		}
		if missed++; missed == maxMissed {
			return err
		}
	}
}

// confirmed is which updates of a stream are stored, in their order.
type confirmed struct {
	in      channel.Intake
	changed chan struct{} // has one when position has changed

	mu       sync.Mutex
	open     []*open
	position string // of the last update up to which all are stored
}

// open is an update that is not confirmed.
type open struct {
	position string
	stored   bool
}

// taken notes an update. stored is called once it is stored.
func (c *confirmed) taken(position string) (stored func()) {
	o := &open{position: position}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = append(c.open, o)
	return func() { c.stored(o) }
}

func (c *confirmed) stored(o *open) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o.stored = true
	if c.open[0] != o {
		return // one before it is not
	}
	for len(c.open) > 0 && c.open[0].stored {
		c.position, c.open[0] = c.open[0].position, nil
		c.open = c.open[1:]
	}
	c.in.Keep(cursor, c.position)
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// send confirms what is stored until ctx ends.
func (c *confirmed) send(ctx context.Context, stream interface {
	Send(*channelv1.ReceiveRequest) error
},
) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.changed:
		}
		c.mu.Lock()
		position := c.position
		c.mu.Unlock()
		if err := stream.Send(&channelv1.ReceiveRequest{Position: position}); err != nil {
			if errors.Is(err, io.EOF) {
				return nil // Recv has the cause
			}
			return err
		}
	}
}

var kinds = map[channelv1.Kind]string{
	channelv1.Kind_KIND_DM: channel.KindDM, channelv1.Kind_KIND_GROUP: channel.KindGroup, channelv1.Kind_KIND_CHANNEL: channel.KindChannel,
}

// update is what a person wrote, for the intake.
func (r *receiver) update(d *description, u *channelv1.ReceiveResponse) channel.Update {
	c := u.GetConversation()
	out := channel.Update{
		Key: key(d.identity, c.GetSessionId(), u.GetMessageId()), Kind: kinds[c.GetKind()], SessionID: c.GetSessionId(), PeerID: u.GetPeerId(), PeerName: u.GetPeerName(),
		Thread: c.GetThread(), Parent: c.GetParent(), Guild: c.GetGuildId(), Team: c.GetTeamId(), MessageID: u.GetMessageId(),
		Text: u.GetText(), Mentioned: u.GetMentioned(), Bot: u.GetBot(), Forwarded: u.GetForwarded(), Album: u.GetAlbum(),
		Extra: u.GetExtra(),
	}
	switch {
	case u.GetMessageId() == "", !answerable(u):
		// The registry refuses it without a key. With one, it would be a repeat of every other one without an identifier, or its
		// answer could not be sent. No album has it, which would be refused with it.
		out.Key, out.Album = "", ""
	case u.GetEdit() != "":
		out.EditOf = out.Key
		out.Key += ":e" + fingerprint(u.GetEdit())[:16]
	}
	if to := u.GetReplyTo(); to != nil {
		out.ReplyTo = &channel.ReplyTo{ID: to.GetMessageId(), Text: to.GetText(), Mine: to.GetMine()}
	}
	if u.GetSentAt().IsValid() {
		out.SentAt = u.GetSentAt().AsTime()
	}
	for _, f := range u.GetAttachments() {
		a := channel.Attachment{Type: f.GetType(), MIME: f.GetMime(), Name: f.GetName(), Size: max(f.GetSize(), 0)}
		if id, size := f.GetId(), a.Size; id != "" {
			a.Open = func(ctx context.Context, limit int64) (io.ReadCloser, error) { return r.open(ctx, id, size, limit) }
		}
		out.Attachments = append(out.Attachments, a)
	}
	return out
}

// answerable reports whether a reply can name where a message came from: see [target].
func answerable(u *channelv1.ReceiveResponse) bool {
	c := u.GetConversation()
	return len(c.GetSessionId()) <= maxSession && !strings.ContainsRune(c.GetSessionId(), 0) && len(c.GetThread()) <= maxSession && len(u.GetPeerId()) <= maxSession &&
		len(u.GetMessageId()) <= maxMessageID && len(c.GetGuildId()) <= maxGroup && len(c.GetTeamId()) <= maxGroup
}

// key names a message. Ids may hold anything, and may be long: no two have one key.
func key(identity, session, message string) string {
	return "plugin:" + identity + ":" + fingerprint(fmt.Sprintf("%d:%s%s", len(session), session, message))
}

func fingerprint(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// open fetches the data of an attachment over a connection of its own, so that it delays no update.
func (r *receiver) open(ctx context.Context, id string, size, limit int64) (io.ReadCloser, error) {
	c, err := r.dial(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	stream, err := c.ReadAttachment(ctx, &channelv1.ReadAttachmentRequest{Id: id})
	if err != nil {
		cancel()
		c.close()
		return nil, r.down(ctx, err)
	}
	if size == 0 {
		size = -1
	}
	return channel.File(&attached{account: r.account, ctx: ctx, stream: stream, end: func() { cancel(); c.close() }}, size, limit)
}

// attached reads the data of an attachment.
type attached struct {
	account *account
	ctx     context.Context //nolint:containedctx // of the stream, which it ends
	stream  interface {
		Recv() (*channelv1.ReadAttachmentResponse, error)
	}
	left []byte
	end  func()
}

// Read implements [io.Reader].
func (f *attached) Read(p []byte) (int, error) {
	for len(f.left) == 0 {
		m, err := f.stream.Recv()
		if errors.Is(err, io.EOF) {
			return 0, io.EOF
		}
		if err != nil {
			return 0, f.account.down(f.ctx, err)
		}
		f.left = m.GetData()
	}
	n := copy(p, f.left)
	f.left = f.left[n:]
	return n, nil
}

// Close implements [io.Closer].
func (f *attached) Close() error {
	f.end()
	return nil
}
