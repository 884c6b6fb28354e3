package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/rpc"
	channelv1 "github.com/theclaw/agents/proto/gen/theclaw/channel/v1"
)

const (
	// connectLimit bounds the connection, describeLimit Describe and Probe, sendLimit Send and Edit,
	// callLimit other calls.
	connectLimit, describeLimit, sendLimit, callLimit = 5 * time.Second, 10 * time.Second, time.Minute, 20 * time.Second
	// maxMessage is the largest message of a plugin, in bytes: an update with 1 MiB of text.
	maxMessage = 2 << 20
	// maxHeader is the most bytes of the head and the status of an answer.
	maxHeader = 64 << 10
	// maxRetry is the longest wait that a plugin can ask for.
	maxRetry = 24 * time.Hour
	maxWhat  = 200
)

// Limits of what a plugin says about itself, as in the proto.
const (
	maxIdentity = 256
	leastText   = 64
	mostText    = 100_000
	leastTyping = time.Second
	mostTyping  = time.Hour
)

// account is one account whose platform a plugin connects.
type account struct {
	name string
	path string // of the socket
}

func newAccount(name string, d channel.Definition) *account {
	path, _ := socketPath(d.Plugin)
	return &account{name: name, path: path}
}

// description is what a plugin says about itself, within its limits.
type description struct {
	identity, name string
	maxText        int
	units          func(rune) int
	guarantee      channel.Guarantee
	typing         time.Duration // 0: the platform shows nothing
	can            *channelv1.Capabilities
}

// conn is a connection that is made once: when it is lost, calls fail.
type conn struct {
	channelv1.ChannelPluginServiceClient
	close func()
}

// dial connects to the plugin. Its error is an [*channel.Error]: nothing was sent.
func (a *account) dial(ctx context.Context) (*conn, error) {
	within, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(within, "unix", a.path)
	if err == nil {
		// Here, so that the error says what is wrong.
		if _, _, err = rpc.PeerCredentials().ClientHandshake(within, "", c); err != nil {
			_ = c.Close() // nothing was written
		}
	}
	if err != nil {
		e := &channel.Error{
			Class: channel.Unavailable, BeforeSend: true, Err: err,
			What: fmt.Sprintf("the plugin of %s cannot be reached at %s: %s", a.name, a.path, channel.Clean(cause(err), maxWhat)),
			Fix:  "start the plugin, or correct channels." + a.name + ".plugin",
		}
		if errors.Is(ctx.Err(), context.Canceled) {
			e.Class, e.What, e.Fix = channel.Interrupted, "the send was stopped", ""
		}
		return nil, e
	}
	once := make(chan net.Conn, 1)
	once <- c
	cc, err := rpc.Dial("unix://"+a.path, rpc.DialOptions{
		Dialer: func(context.Context, string) (net.Conn, error) {
			select {
			case c := <-once:
				return c, nil
			default:
				return nil, errors.New("the connection was lost")
			}
		},
		More: []grpc.DialOption{
			grpc.WithDisableRetry(),
			grpc.WithMaxHeaderListSize(maxHeader),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
			// The servers of most languages close a connection that is pinged more often than each 5
			// minutes. Probe does it.
			grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: math.MaxInt64}),
		},
	})
	if err != nil {
		_ = c.Close()
		return nil, &channel.Error{Class: channel.Unavailable, BeforeSend: true, What: fmt.Sprintf("the plugin of %s cannot be reached", a.name), Err: err}
	}
	return &conn{channelv1.NewChannelPluginServiceClient(cc), func() {
		_ = cc.Close() // its calls have ended
		select {
		case c := <-once: // nothing was called
			_ = c.Close()
		default:
		}
	}}, nil
}

// cause is the innermost text of an error of a socket, without the address.
func cause(err error) string {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err.Error()
	}
	return err.Error()
}

// describe asks the plugin about itself.
func (a *account) describe(ctx context.Context, c *conn) (*description, error) {
	within, cancel := context.WithTimeout(ctx, describeLimit)
	defer cancel()
	r, err := c.Describe(within, &channelv1.DescribeRequest{Account: a.name})
	if err != nil {
		e := a.down(ctx, err)
		e.BeforeSend, e.InDoubt = true, false
		if e.Class != channel.Interrupted { // the message is not the cause
			e.Class = channel.Unavailable
		}
		return nil, e
	}
	return a.read(r)
}

// read checks what a plugin says about itself.
func (a *account) read(r *channelv1.DescribeResponse) (*description, error) {
	d := &description{
		identity: r.GetIdentity(), name: channel.Clean(r.GetName(), 64), maxText: int(r.GetMaxText()), can: r.GetCapabilities(),
		guarantee: map[channelv1.Guarantee]channel.Guarantee{
			channelv1.Guarantee_GUARANTEE_QUERY: channel.Query, channelv1.Guarantee_GUARANTEE_KEYED: channel.Keyed,
		}[r.GetGuarantee()],
	}
	if d.name == "" {
		d.name = channel.Clean(d.identity, 64)
	}
	problem := ""
	switch every := d.can.GetTypingEvery(); {
	case d.identity == "" || len(d.identity) > maxIdentity:
		problem = fmt.Sprintf("identity has %d bytes, and 1 to %d are valid", len(d.identity), maxIdentity)
	case d.maxText < leastText || d.maxText > mostText:
		problem = fmt.Sprintf("max_text is %d, and %d to %d are valid", d.maxText, leastText, mostText)
	case every != nil && (every.AsDuration() < leastTyping || every.AsDuration() > mostTyping):
		problem = fmt.Sprintf("typing_every is %s, and %s to %s are valid", every.AsDuration(), leastTyping, mostTyping)
	case !slices.Contains([]channelv1.TextUnit{0, 1, 2}, r.GetTextUnit()):
		problem = "text_unit is not one that this build knows"
	case every != nil:
		d.typing = every.AsDuration()
	}
	if problem != "" {
		return nil, &channel.Error{
			Class: channel.Unavailable, BeforeSend: true, What: fmt.Sprintf("the plugin of %s does not describe itself correctly: %s", a.name, problem),
			Fix: "correct the plugin",
		}
	}
	if r.GetTextUnit() == channelv1.TextUnit_TEXT_UNIT_UTF16 {
		d.units = utf16Units
	}
	return d, nil
}

// utf16Units is how many units of UTF-16 a character has.
func utf16Units(r rune) int {
	if r > 0xFFFF {
		return 2
	}
	return 1
}

// limit is the longest text of a message.
func (d *description) limit() channel.Limit { return channel.Limit{Max: d.maxText, Units: d.units} }

// down says why a call did not succeed. ctx is the caller's, so that its end differs from a plugin
// that is slow.
//
//	UNAUTHENTICATED                  Unavailable  CHANNEL_AUTH: goes on once it is corrected
//	ABORTED                          Unavailable  CHANNEL_CONFLICT
//	UNAVAILABLE, RESOURCE_EXHAUSTED  Unavailable  after the time of a RetryInfo, and then not in doubt
//	DEADLINE_EXCEEDED                Unavailable  in doubt
//	INVALID_ARGUMENT, NOT_FOUND,
//	FAILED_PRECONDITION, OUT_OF_RANGE,
//	PERMISSION_DENIED, UNIMPLEMENTED Rejected     the same call is refused again
//	other                            Failed       in doubt
func (a *account) down(ctx context.Context, err error) *channel.Error {
	if e, ok := errors.AsType[*channel.Error](err); ok {
		return e
	}
	if errors.Is(err, io.EOF) {
		return &channel.Error{Class: channel.Unavailable, What: fmt.Sprintf("the plugin of %s ended the stream of updates", a.name), Err: err}
	}
	s := status.Convert(err)
	e := &channel.Error{
		Class: channel.Unavailable, InDoubt: true, Err: err, What: fmt.Sprintf("plugin %s: %s", a.name, channel.Clean(s.Message(), maxWhat)),
	}
	asked := false // the plugin said when to call again, so the call had no effect
	for _, d := range s.Details() {
		switch d := d.(type) {
		case *errdetails.RetryInfo:
			asked, e.RetryAfter = true, min(max(d.GetRetryDelay().AsDuration(), 0), maxRetry)
		case *errdetails.Help:
			if l := d.GetLinks(); len(l) > 0 {
				e.Fix = channel.Clean(l[0].GetDescription(), maxWhat)
			}
		}
	}
	switch s.Code() {
	case codes.Canceled, codes.DeadlineExceeded:
		if errors.Is(ctx.Err(), context.Canceled) {
			e.Class, e.What, e.Fix = channel.Interrupted, "the send was stopped", ""
			break
		}
		e.What = fmt.Sprintf("the plugin of %s did not answer in time", a.name)
	case codes.Unauthenticated:
		e.Reason, e.InDoubt = channel.ReasonAuth, false
	case codes.Aborted:
		e.Reason, e.InDoubt = channel.ReasonConflict, false
	case codes.Unavailable, codes.ResourceExhausted:
		e.InDoubt = !asked
		if !asked && s.Code() == codes.Unavailable && strings.Contains(s.Message(), "connection") { // the words of the transport name our sockets
			e.What, e.Fix = fmt.Sprintf("the connection to the plugin of %s was lost", a.name), "look into the output of the plugin"
		}
	case codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition, codes.OutOfRange, codes.PermissionDenied, codes.Unimplemented:
		e.Class, e.InDoubt = channel.Rejected, false
	default:
		e.Class = channel.Failed
	}
	return e
}

// describeEvery is how long a sender uses what the plugin said about itself: a plugin that was
// replaced may have other limits.
const describeEvery = time.Minute

// known is what a sender knows about its plugin.
type known struct {
	mu   sync.Mutex
	last *description
	at   time.Time
}

// get returns what is known: what the plugin says now, where that is old. fresh means that nothing
// was known before.
func (k *known) get(ctx context.Context, a *account) (d *description, fresh bool, err error) {
	k.mu.Lock()
	last, at := k.last, k.at
	k.mu.Unlock()
	if last != nil && time.Since(at) < describeEvery {
		return last, false, nil
	}
	c, err := a.dial(ctx)
	if err != nil {
		return last, last == nil, err
	}
	defer c.close()
	d, err = a.describe(ctx, c)
	if err != nil {
		return last, last == nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last, k.at = d, time.Now()
	return d, last == nil, nil
}
