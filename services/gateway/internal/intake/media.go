package intake

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/pause"
	"github.com/theclaw/agents/internal/rpc/media"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

const (
	// maxAttachments is how many of a message are taken.
	maxAttachments = 10
	// mediaTries is how often an attachment is fetched until it is given up. mediaLimit bounds
	// each time, and each call that stores one.
	mediaTries, mediaLimit = 3, 30 * time.Second
	// MaxFetch is how long a program waits for the attachments of its message: those that are not
	// stored by then are given up.
	MaxFetch = time.Minute
	// mediaPlaces is how many attachments are in the memory of a gateway at a time.
	mediaPlaces = 8
	maxFileName = 128
)

// tooLarge reports an attachment that is larger than the settings of the account let it be.
type tooLarge struct {
	size    int64 // bytes; 0: not known
	limit   int   // MiB
	account string
}

func (e tooLarge) Error() string {
	size := "more than " + strconv.Itoa(e.limit) + " MiB"
	if e.size > 0 {
		size = strconv.FormatInt(e.size, 10) + " bytes"
	}
	return fmt.Sprintf("it has %s; channels.%s.media_max_mib is %d", size, e.account, e.limit)
}

// files stores the attachments of the messages of one account.
type files struct {
	deps    Deps
	account string
	most    int           // MiB of an attachment
	places  chan struct{} // for attachments of the account in memory
}

// limit is the most bytes of an attachment.
func (f files) limit() int64 { return int64(f.most) << 20 }

// attach adds the attachments of an update to its message, without their data.
func attach(u channel.Update, m *registryv1.InboundMessage) []*registryv1.Attachment {
	for n, file := range u.Attachments {
		if n == maxAttachments {
			m.Text += fmt.Sprintf("\n[%d more attachments were left out: %d are the most]", len(u.Attachments)-n, maxAttachments)
			break
		}
		m.Attachments = append(m.Attachments, described(file, n))
	}
	return m.GetAttachments()
}

// nameFiles adds the names of the attachments of an update to the text of a message that starts no turn.
func nameFiles(u channel.Update, m *registryv1.InboundMessage) {
	for n, file := range u.Attachments[:min(len(u.Attachments), maxAttachments)] {
		out := described(file, n)
		m.Text = strings.TrimPrefix(m.GetText()+fmt.Sprintf("\n[attachment: %s %q, not fetched]", out.GetType(), out.GetName()), "\n")
	}
}

// described is an attachment as its platform describes it, with valid and bounded texts.
func described(file channel.Attachment, n int) *registryv1.Attachment {
	out := &registryv1.Attachment{Type: file.Type, Mime: mediaType(file.MIME), Size: max(file.Size, 0)}
	if !slices.Contains([]string{"image", "audio", "voice", "video", "file"}, out.GetType()) {
		out.Type = kindOf(out.GetMime())
	}
	if name, _ := boundary.Text(file.Name, 0); strings.Trim(name, ". ") != "" {
		name = name[strings.LastIndexAny(name, `/\`)+1:]
		out.Name = channel.Clean(name, maxFileName)
	}
	if strings.Trim(out.GetName(), ". ") == "" {
		out.Name = fmt.Sprintf("%s-%d", out.GetType(), n+1)
		if ext, _ := mime.ExtensionsByType(out.GetMime()); len(ext) > 0 {
			out.Name += ext[0]
		}
	}
	return out
}

// kindOf is the type of an attachment with a media type.
func kindOf(mime string) string {
	switch kind, _, _ := strings.Cut(mime, "/"); kind {
	case "image", "audio", "video":
		return kind
	}
	return "file"
}

// mediaType is a media type without its parameters; empty: it is none.
func mediaType(s string) string {
	t, _, err := mime.ParseMediaType(s)
	if err != nil || len(t) > 127 || strings.Count(t, "/") != 1 {
		return ""
	}
	return t
}

// putAll stores the attachments of an update for the agent that gets it, at the same time: a program waits. One that
// panics is missing, and nothing else is.
func (f files) putAll(ctx context.Context, agentID string, u channel.Update, m *registryv1.InboundMessage) {
	var g sync.WaitGroup
	for n, out := range attach(u, m) {
		g.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					f.deps.Logger.Error("an attachment panicked", "account", f.account, "error", fmt.Sprintf("%v\n%s", p, debug.Stack()))
					out.Error = "it broke off, see the log of the gateway"
				}
			}()
			f.put(ctx, agentID, u.Attachments[n], out)
		})
	}
	g.Wait()
}

// put stores the data of an attachment for the agent that gets it. One that cannot be had says why.
func (f files) put(ctx context.Context, agentID string, file channel.Attachment, out *registryv1.Attachment) {
	if err := f.store(ctx, agentID, file, out); err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		out.Error = channel.Clean(err.Error(), 200)
		f.deps.Logger.Warn("an attachment is not stored", "account", f.account, "agent_id", agentID, "error", out.GetError())
	}
}

// store fetches the data of an attachment, unless they came with its message, and stores them.
func (f files) store(ctx context.Context, agentID string, file channel.Attachment, out *registryv1.Attachment) error {
	switch {
	case file.Data == nil && file.Open == nil:
		return errors.New("its data cannot be fetched")
	case f.most == 0, file.Size > f.limit():
		return tooLarge{file.Size, f.most, f.account}
	}
	data := file.Data
	if data == nil {
		// An account that is slow holds only its own places of all.
		for _, places := range []chan struct{}{f.places, f.deps.media} {
			select {
			case places <- struct{}{}:
				defer func() { <-places }()
			case <-ctx.Done():
				return errors.New("there was no time left to fetch it")
			}
		}
		var err error
		for try := range mediaTries {
			if data, err = f.fetch(ctx, file); err == nil || final(err) || pause.For(ctx, again.Wait(try)) != nil {
				break
			}
		}
		if err != nil {
			return err
		}
	}
	if len(data) == 0 {
		return errors.New("it is empty")
	}
	sum := sha256.Sum256(data)
	// What it is follows from its data, not from what its sender says.
	if found := mediaType(http.DetectContentType(data)); found != "application/octet-stream" || out.GetMime() == "" {
		out.Mime = found
	}
	if file.Type == "" {
		out.Type = kindOf(out.GetMime())
	}
	out.Size, out.Sha256 = int64(len(data)), hex.EncodeToString(sum[:])
	for began, try := time.Now(), 0; ; try++ {
		err := f.write(ctx, agentID, out, data)
		if err == nil {
			fault.Point("G2")
			f.deps.Metrics.AddMedia(len(data))
			return nil
		}
		e := fault.From(err)
		if !away(e) || time.Since(began) > patience || pause.For(ctx, max(e.RetryAfter, again.Wait(try))) != nil {
			out.Sha256 = ""
			return errors.New(e.What)
		}
	}
}

// away reports whether the registry cannot be reached now, or has started again since it was last called: then the
// first call has the token of the earlier start.
func away(e *fault.Error) bool {
	return slices.Contains([]codes.Code{codes.Unavailable, codes.DeadlineExceeded, codes.Unauthenticated}, e.Code)
}

// fetch reads the data of an attachment.
func (f files) fetch(ctx context.Context, file channel.Attachment) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, mediaLimit)
	defer cancel()
	in, err := file.Open(ctx, f.limit())
	if err == nil {
		defer in.Close()
		var data []byte
		if data, err = boundary.Body(in, f.limit()); err == nil {
			return data, nil
		}
	}
	if larger(err) && (file.Size == 0 || file.Size > f.limit()) { // else the platform has a limit of its own, and names it
		err = tooLarge{0, f.most, f.account}
	}
	return nil, err
}

// final reports whether an attachment that was not fetched will not be fetched by another try.
func final(err error) bool {
	e, ok := errors.AsType[*channel.Error](err)
	return ok && e.Class == channel.Rejected || larger(err)
}

// larger reports whether an attachment was not fetched because of its size.
func larger(err error) bool {
	_, ok := errors.AsType[tooLarge](err)
	return ok || errors.Is(err, boundary.ErrTooLarge) || errors.Is(err, channel.ErrTooLarge)
}

// write stores data in the registry.
func (f files) write(ctx context.Context, agentID string, out *registryv1.Attachment, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, mediaLimit)
	defer cancel()
	return media.Write(ctx, f.deps.Media, agentID, &registryv1.Media{Sha256: out.GetSha256(), Mime: out.GetMime(), Name: out.GetName(), Size: out.GetSize()}, data)
}

// missing are the attachments of a message that did not arrive, each with the reason.
func missing(m *registryv1.InboundMessage) (list []string) {
	for _, file := range m.GetAttachments() {
		if file.GetError() != "" {
			list = append(list, fmt.Sprintf("%s: %s", file.GetName(), file.GetError()))
		}
	}
	return list
}

// notifyOfFiles says in a conversation which files of a message did not arrive.
func (a *Account) notifyOfFiles(u channel.Update, m *registryv1.InboundMessage) {
	if list := missing(m); len(list) > 0 {
		_ = a.notify(u, "files", "Not received: "+strings.Join(list, "; ")+".")
	}
}
