package store

import (
	"context"
	"errors"
	"regexp"
	"time"
)

// ErrNoMedia reports that an agent has no media of a hash.
var ErrNoMedia = errors.New("there are no such media")

const (
	// MaxMedia bounds the size of one piece of media, in bytes.
	MaxMedia = 50 << 20
	// MediaPiece is how many bytes a read returns, except at the end.
	MediaPiece = 256 << 10
	// MediaGrace is how long media stay that nothing refers to: they are written before what refers to them.
	MediaGrace = time.Hour
)

// MediaInfo describes media: an image or another file that an event or a step refers to.
type MediaInfo struct {
	SHA256     string // of the data, in hex
	MIME, Name string
	Size       int64
	At         time.Time // when they were written last; set by the engine
}

// Media keeps the media of an agent by the hash of their data.
//
//	PutMedia --> data on disk --> row --> an event or step with "media": "sha256:..."
//
// A crash between two of these leaves what nothing refers to, which RemoveMedia removes. What was written
// again is new again: a reference that is about to be stored finds its media.
type Media interface {
	// PutMedia stores media; they are on disk when it returns. f is the lease of the caller, if it has one.
	// Media of the same hash are one: their first name and type stay.
	PutMedia(ctx context.Context, agent string, f *Fence, m MediaInfo, data []byte) error
	// MediaInfo describes media; ErrNoMedia.
	MediaInfo(ctx context.Context, agent, sha256 string) (MediaInfo, error)
	// MediaPiece returns the nth piece of their data, from 0; ErrNoMedia when it is not there.
	MediaPiece(ctx context.Context, agent, sha256 string, n int64) ([]byte, error)
	// ListMedia returns those that were written before a time and follow a hash in order, at most limit.
	ListMedia(ctx context.Context, agent string, before time.Time, after string, limit int) ([]MediaInfo, error)
	// MediaRefs calls found for each hash that a thread refers to: in the result of a step that is stored, in
	// an event that is not older than since, or in a message of any age that waits or that is a dead letter, which
	// may be tried again. A hash may be found more than once.
	MediaRefs(ctx context.Context, r Ref, since time.Time, found func(sha256 string)) error
	// RemoveMedia removes media that were not written since before, and counts them. It also removes data
	// without a row that are as old.
	RemoveMedia(ctx context.Context, agent string, sha256 []string, before time.Time) (Share, error)
}

// EachPiece calls each for the pieces of media in their order. ErrNoMedia when there are fewer or more data than m says.
func EachPiece(ctx context.Context, s Media, agent string, m MediaInfo, each func(piece []byte) error) error {
	left := m.Size
	for n := int64(0); left > 0; n++ {
		piece, err := s.MediaPiece(ctx, agent, m.SHA256, n)
		if err != nil {
			return err
		}
		if left -= int64(len(piece)); len(piece) == 0 || left < 0 {
			return ErrNoMedia
		}
		if err := each(piece); err != nil {
			return err
		}
	}
	return nil
}

// mediaRef is a reference, as it is in the JSON of an event or a result.
var mediaRef = regexp.MustCompile(`"sha256:([0-9a-f]{64})"`)

// MediaRefMark is in each text that refers to media.
const MediaRefMark = `"sha256:`

// FindMediaRefs calls found for each reference in a text.
func FindMediaRefs(text []byte, found func(sha256 string)) {
	for _, m := range mediaRef.FindAllSubmatch(text, -1) {
		found(string(m[1]))
	}
}
