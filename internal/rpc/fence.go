package rpc

import (
	"context"
	"strconv"

	"google.golang.org/grpc/metadata"
)

// Metadata keys of what travels with a call.
const (
	MetaRequestID = "x-request-id"
	MetaAuth      = "authorization"

	metaFenceResource = "x-theclaw-fence-resource"
	metaFenceToken    = "x-theclaw-fence-token"
	metaFenceHolder   = "x-theclaw-fence-holder"
)

// WithFence puts a holder's proof on every call made with the returned context:
// the resource ("agent/<id>" or "deliver/<id>"), its fencing token and the
// holder's name. All three are printable ASCII. A fence already there is replaced.
func WithFence(ctx context.Context, resource string, token uint64, holder string) context.Context {
	md, _ := metadata.FromOutgoingContext(ctx) // a copy
	if md == nil {
		md = metadata.MD{}
	}
	md.Set(metaFenceResource, resource)
	md.Set(metaFenceToken, strconv.FormatUint(token, 10))
	md.Set(metaFenceHolder, holder)
	return metadata.NewOutgoingContext(ctx, md)
}

// FenceFrom reads the fence of the call being handled. ok is false unless there
// is exactly one whole fence: half of one, or two, proves nothing.
func FenceFrom(ctx context.Context) (resource string, token uint64, holder string, ok bool) {
	resource, ok1 := one(ctx, metaFenceResource)
	text, ok2 := one(ctx, metaFenceToken)
	holder, ok3 := one(ctx, metaFenceHolder)
	token, err := strconv.ParseUint(text, 10, 64)
	if !ok1 || !ok2 || !ok3 || err != nil || token == 0 {
		return "", 0, "", false
	}
	return resource, token, holder, true
}

func one(ctx context.Context, key string) (string, bool) {
	v := metadata.ValueFromIncomingContext(ctx, key)
	if len(v) != 1 || v[0] == "" {
		return "", false
	}
	return v[0], true
}
