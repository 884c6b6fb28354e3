package turn

import (
	"context"
	"slices"

	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// Media stores the images of results, and reads media for requests and for the working directory.
type Media interface {
	toolset.Media
	Read(ctx context.Context, agentID string, trusted func(context.Context) error, m model.Image) ([]byte, error)
}

const (
	// maxImages and maxImageBytes bound the images of a request.
	maxImages     = 20
	maxImageBytes = 20 << 20
)

func hasImages(m model.Message) bool { return len(m.Images) > 0 }

// shown are the messages with the images that the model gets: the newest ones, up to the bounds of a request. A line of
// text stands for each other one. The same messages give the same result, so that the request of the next round begins
// with that of this one.
func (t *turn) shown(said []model.Message) []model.Message {
	if !slices.ContainsFunc(said, hasImages) {
		return said
	}
	n, size := 0, int64(0)
	out := slices.Clone(said)
	for i := len(out) - 1; i >= 0; i-- {
		m := &out[i]
		for _, image := range m.Images {
			n, size = n+1, size+image.Size
		}
		switch {
		case !t.model.Images || t.Media == nil:
			*m = m.WithoutImages("this model takes none")
		case n > maxImages || size > maxImageBytes:
			*m = m.WithoutImages("newer ones are shown")
		}
	}
	return out
}

// load returns the messages with the data of their images. What cannot be read is a line of text.
func (t *turn) load(ctx context.Context, messages []model.Message) ([]model.Message, error) {
	if !slices.ContainsFunc(messages, hasImages) {
		t.images = nil
		return messages, nil
	}
	used := map[string][]byte{} // what no request has any more is forgotten
	out := slices.Clone(messages)
	for i := range out {
		m := &out[i]
		if len(m.Images) == 0 {
			continue
		}
		list := m.Images
		m.Images = nil
		for _, image := range list {
			data, ok := t.images[image.SHA256]
			if !ok {
				var err error
				if data, err = t.Media.Read(ctx, t.w.AgentID, t.trusted, image); err == nil {
					_, err = toolset.CheckImage(data) // one that a person sent was not read before
				}
				if err != nil {
					if ctx.Err() != nil {
						return nil, context.Cause(ctx)
					}
					t.logf("WARN", "model: an image is left out: %s", err)
					m.Text += "\n" + image.LeftOut("it cannot be shown")
					continue
				}
			}
			used[image.SHA256], image.Data = data, data
			m.Images = append(m.Images, image)
		}
	}
	t.images = used
	return out, nil
}
