package fault

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Domain is the ErrorInfo domain of every reason of this project.
const Domain = "theclaw"

// maxText caps each text of a status in bytes, because details travel in HTTP/2
// trailers and a trailer over the peer's limit loses the complete response.
const maxText = 2048

// hidden is all a caller learns about an error that nobody wrote for a reader.
const hidden = "internal error"

// Status is the server's edge. The outermost [Error] in the chain decides; then
// context errors; then a status that a called service gave, which passes with
// its own words (never those of the wrapping chain) and gets a reason if it has
// none. Everything else is Internal with a hidden text. nil gives nil, as
// [status.Status] counts nil as OK.
func Status(err error) *status.Status {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.status()
	}
	if e := fromContext(err); e != nil {
		return e.status()
	}
	if s := statusOf(err); s != nil {
		return withReason(s)
	}
	return (&Error{Code: codes.Internal, Reason: Internal, What: hidden, Fix: internalFix}).status()
}

// From is the client's edge: it finds an [Error] in the chain or decodes the
// gRPC status there. It returns nil only for nil. The original err is kept as
// cause of a decoded error, so errors.Is still finds a context error.
func From(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if s := statusOf(err); s != nil {
		e := decode(s)
		e.Err = err
		return e
	}
	if e := fromContext(err); e != nil {
		return e
	}
	return &Error{Code: codes.Internal, Reason: Internal, What: err.Error(), Err: err}
}

// statusOf finds a status that is a failure; status.FromError is not used
// because it replaces the message by that of the wrapping chain.
func statusOf(err error) *status.Status {
	var g interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &g) {
		return nil
	}
	s := g.GRPCStatus()
	if s == nil || s.Code() == codes.OK {
		return nil
	}
	return s
}

func (e *Error) status() *status.Status {
	code := e.Code
	if code == codes.OK { // an Error built by hand must not read as success
		code = codes.Internal
	}
	info := &errdetails.ErrorInfo{Reason: clean(e.Reason), Domain: Domain}
	if info.GetReason() == "" {
		info.Reason = byCode(code).Reason
	}
	for k, v := range e.Meta {
		if info.Metadata == nil {
			info.Metadata = make(map[string]string, len(e.Meta))
		}
		info.Metadata[clean(k)] = clean(v)
	}
	details := []protoadapt.MessageV1{info}
	if e.Fix != "" {
		details = append(details, &errdetails.Help{Links: []*errdetails.Help_Link{{Description: clean(e.Fix)}}})
	}
	if len(e.Fields) > 0 {
		bad := &errdetails.BadRequest{}
		for _, f := range e.Fields[:min(len(e.Fields), 32)] {
			bad.FieldViolations = append(bad.FieldViolations,
				&errdetails.BadRequest_FieldViolation{Field: clean(f.Name), Description: clean(f.Problem)})
		}
		details = append(details, bad)
	}
	if e.RetryAfter > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(e.RetryAfter)})
	}
	return attach(status.New(code, clean(e.What)), details...)
}

// attach cannot fail for well-formed details; if it ever does, the answer
// without details is better than none.
func attach(s *status.Status, details ...protoadapt.MessageV1) *status.Status {
	full, err := s.WithDetails(details...)
	if err != nil {
		return s
	}
	return full
}

func withReason(s *status.Status) *status.Status {
	if infoOf(s) != nil {
		return s
	}
	d := byCode(s.Code())
	if s.Code() == codes.Unavailable { // the transport's words name our sockets
		s = status.New(codes.Unavailable, d.What)
	}
	return attach(s, &errdetails.ErrorInfo{Reason: d.Reason, Domain: Domain})
}

func infoOf(s *status.Status) *errdetails.ErrorInfo {
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.GetDomain() == Domain {
			return info
		}
	}
	return nil
}

// decode reads what status wrote; a status of somebody else (the transport, a
// validation layer) gets the reason and the advice that its code allows.
func decode(s *status.Status) *Error {
	e := &Error{Code: s.Code(), What: s.Message()}
	if info := infoOf(s); info != nil {
		e.Reason = info.GetReason()
		if m := info.GetMetadata(); len(m) > 0 {
			e.Meta = m
		}
	} else {
		d := byCode(s.Code())
		e.Reason, e.Fix = d.Reason, d.Fix
		if d.What != "" {
			e.What = d.What
		}
	}
	for _, d := range s.Details() {
		switch d := d.(type) {
		case *errdetails.Help:
			if l := d.GetLinks(); len(l) > 0 {
				e.Fix = l[0].GetDescription()
			}
		case *errdetails.BadRequest:
			for _, v := range d.GetFieldViolations() {
				e.Fields = append(e.Fields, Field{Name: v.GetField(), Problem: v.GetDescription()})
			}
		case *errdetails.RetryInfo:
			e.RetryAfter = max(0, d.GetRetryDelay().AsDuration())
		}
	}
	return e
}

const internalFix = "look into the log of the service, under the request id"

// byCode is the best reading of a bare status code. What is set where the
// original text would only confuse (transport messages name sockets and errnos).
func byCode(code codes.Code) Error {
	switch code {
	case codes.Unavailable:
		return Error{Reason: ServiceUnavailable, What: "the service does not answer", Fix: "start it with `agentd all`"}
	case codes.InvalidArgument, codes.OutOfRange:
		return Error{Reason: InvalidArgument, Fix: "correct the argument"}
	case codes.Unauthenticated:
		return Error{Reason: Unauthenticated, Fix: "read the token again, or check the certificate"}
	case codes.PermissionDenied:
		return Error{Reason: PermissionDenied, Fix: "use an account that may do this"}
	case codes.Canceled:
		return Error{Reason: Canceled, What: "the call was canceled"}
	case codes.DeadlineExceeded:
		return Error{Reason: Deadline, What: "the call did not finish in time", Fix: "try again, or allow more time"}
	case codes.Unimplemented:
		return Error{Reason: Unimplemented, Fix: "use a client and a service of the same version"}
	case codes.ResourceExhausted:
		return Error{Reason: Overloaded, Fix: "send less at once, or wait"}
	}
	return Error{Reason: Internal, Fix: internalFix}
}

// clean makes a text fit for a proto3 string (invalid UTF-8 would make the whole
// answer unmarshallable) and caps it.
func clean(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= maxText {
		return s
	}
	cut := maxText
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return fmt.Sprintf("%s... (%d bytes more)", s[:cut], len(s)-cut)
}
