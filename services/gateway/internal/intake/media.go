package intake

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
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
	// mediaTries is how often an attachment is fetched until it is given up, mediaLimit bounds
	// each time.
	mediaTries, mediaLimit = 3, 30 * time.Second
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

// maxMedia is the most bytes of an attachment.
func (a *Account) maxMedia() int64 { return int64(a.mediaMaxMiB) << 20 }

// attach stores the attachments of an update for the agent that gets it, and adds them to the
// message. One that cannot be had says why.
func (a *Account) attach(agentID string, u channel.Update, m *registryv1.InboundMessage) {
	for n, file := range u.Attachments {
		if n == maxAttachments {
			m.Text += fmt.Sprintf("\n[%d more attachments were left out: %d are the most]", len(u.Attachments)-n, maxAttachments)
			break
		}
		out := described(file, n)
		m.Attachments = append(m.Attachments, out)
		if err := a.store(agentID, file, out); err != nil && a.ctx.Err() == nil {
			out.Error = channel.Clean(err.Error(), 200)
			a.deps.Logger.Warn("an attachment is not stored", "account", a.name, "agent_id", agentID, "error", out.GetError())
		}
	}
}

// described is an attachment as its platform describes it, with valid and bounded texts.
func described(file channel.Attachment, n int) *registryv1.Attachment {
	out := &registryv1.Attachment{Type: file.Type, Size: max(file.Size, 0)}
	if !slices.Contains([]string{"image", "audio", "voice", "video", "file"}, out.GetType()) {
		out.Type = "file"
	}
	out.Mime = mediaType(file.MIME)
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

// mediaType is a media type without its parameters; empty: it is none.
func mediaType(s string) string {
	t, _, err := mime.ParseMediaType(s)
	if err != nil || len(t) > 127 || strings.Count(t, "/") != 1 {
		return ""
	}
	return t
}

// store fetches an attachment and stores its data.
func (a *Account) store(agentID string, file channel.Attachment, out *registryv1.Attachment) error {
	switch {
	case file.Open == nil:
		return errors.New("its data cannot be fetched")
	case a.mediaMaxMiB == 0, file.Size > a.maxMedia():
		return tooLarge{file.Size, a.mediaMaxMiB, a.name}
	}
	// One of the account at a time: an account that is slow holds one of the places of all.
	select {
	case a.file <- struct{}{}:
		defer func() { <-a.file }()
	case <-a.ctx.Done():
		return a.ctx.Err()
	}
	select {
	case a.deps.media <- struct{}{}:
		defer func() { <-a.deps.media }()
	case <-a.ctx.Done():
		return a.ctx.Err()
	}
	var data []byte
	var err error
	for try := range mediaTries {
		if data, err = a.fetch(file); err == nil || larger(err) || pause.For(a.ctx, again.Wait(try)) != nil {
			break
		}
	}
	switch {
	case err != nil:
		return err
	case len(data) == 0:
		return errors.New("it is empty")
	}
	sum := sha256.Sum256(data)
	// What it is follows from its data, not from what its sender says.
	if found := mediaType(http.DetectContentType(data)); found != "application/octet-stream" || out.GetMime() == "" {
		out.Mime = found
	}
	out.Size, out.Sha256 = int64(len(data)), hex.EncodeToString(sum[:])
	for try := 0; ; try++ {
		err := a.write(agentID, out, data)
		if err == nil {
			fault.Point("G2")
			a.deps.Metrics.AddMedia(len(data))
			return nil
		}
		if f := fault.From(err); try+1 == mediaTries || f.Code != codes.Unavailable || pause.For(a.ctx, max(f.RetryAfter, again.Wait(try))) != nil {
			out.Sha256 = ""
			return errors.New(f.What)
		}
	}
}

// fetch reads the data of an attachment.
func (a *Account) fetch(file channel.Attachment) ([]byte, error) {
	ctx, cancel := context.WithTimeout(a.ctx, mediaLimit)
	defer cancel()
	in, err := file.Open(ctx, a.maxMedia())
	if err == nil {
		defer in.Close()
		var data []byte
		if data, err = boundary.Body(in, a.maxMedia()); err == nil {
			return data, nil
		}
	}
	if larger(err) && (file.Size == 0 || file.Size > a.maxMedia()) { // else the platform has a limit of its own, and names it
		err = tooLarge{0, a.mediaMaxMiB, a.name}
	}
	return nil, err
}

// larger reports whether an attachment was not fetched because of its size.
func larger(err error) bool {
	_, ok := errors.AsType[tooLarge](err)
	return ok || errors.Is(err, boundary.ErrTooLarge) || errors.Is(err, channel.ErrTooLarge)
}

// write stores data in the registry.
func (a *Account) write(agentID string, out *registryv1.Attachment, data []byte) error {
	ctx, cancel := context.WithTimeout(a.ctx, mediaLimit)
	defer cancel()
	return media.Write(ctx, a.deps.Media, agentID, &registryv1.Media{Sha256: out.GetSha256(), Mime: out.GetMime(), Name: out.GetName(), Size: out.GetSize()}, data)
}

// notifyOfFiles says in a conversation which files of a message did not arrive.
func (a *Account) notifyOfFiles(u channel.Update, m *registryv1.InboundMessage) {
	var missing []string
	for _, file := range m.GetAttachments() {
		if file.GetError() != "" {
			missing = append(missing, fmt.Sprintf("%s: %s", file.GetName(), file.GetError()))
		}
	}
	if len(missing) > 0 {
		_ = a.notify(u, "files", "Not received: "+strings.Join(missing, "; ")+".")
	}
}
