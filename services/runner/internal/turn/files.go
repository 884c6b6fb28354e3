package turn

import (
	"context"
	"errors"
	"os"
	"path"

	"github.com/theclaw/agents/internal/agentdir/safefile"
	"github.com/theclaw/agents/internal/thread"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/prompt"
)

// placeUnread puts the files of the message of the turn, and of those before it since the last answer,
// into the working directory, and has what was said in them made into text.
func (t *turn) placeUnread(ctx context.Context) error {
	tail := t.begun.GetTail()
	first := len(tail)
	for first > 0 && (tail[first-1].GetSource() != thread.SourceSelf || tail[first-1].GetType() == thread.TypeRecord) {
		first--
	}
	for _, e := range tail[first:] {
		if err := t.placeFiles(ctx, e.GetSource(), e.GetContent()); err != nil {
			return err
		}
		if e.GetType() == thread.TypeRecord {
			continue
		}
		if err := t.transcribeFiles(ctx, e.GetId(), e.GetSource(), e.GetContent()); err != nil {
			return err
		}
	}
	in := t.begun.GetInbound()
	if err := t.placeFiles(ctx, in.GetSource(), in.GetContent()); err != nil {
		return err
	}
	return t.transcribeFiles(ctx, in.GetId(), in.GetSource(), in.GetContent())
}

// placeFiles puts the files that came with a message into the working directory, before a model reads
// of them. One that is there stays as it is; one that cannot be had is reported in the log. The error
// is the cause of ctx.
func (t *turn) placeFiles(ctx context.Context, source, content string) error {
	if source == thread.SourceSelf {
		return nil
	}
	for _, a := range prompt.Attachments(content) {
		if err := t.placeFile(ctx, a); ctx.Err() != nil {
			return context.Cause(ctx)
		} else if err != nil {
			t.logf("WARN", "the file %s of a message is not in the working directory: %s", a.Path(), err)
		}
	}
	return nil
}

func (t *turn) placeFile(ctx context.Context, a prompt.Attachment) (err error) {
	at := t.begun.GetConfig().GetWorkdir()
	if at == "" || t.Media == nil {
		return errors.New("there is no working directory")
	}
	root, err := os.OpenRoot(at)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	if info, err := root.Lstat(a.Path()); err == nil && info.Mode().IsRegular() && info.Size() == a.Size {
		return nil
	}
	data, err := t.Media.Read(ctx, t.w.AgentID, t.trusted, model.Image{SHA256: a.SHA256(), MIME: a.MIME, Name: a.Name, Size: a.Size})
	if err != nil {
		return err
	}
	if err := root.MkdirAll(path.Dir(a.Path()), 0o700); err != nil {
		return err
	}
	return safefile.Replace(root, a.Path(), data)
}
