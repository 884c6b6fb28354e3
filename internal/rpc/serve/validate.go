package serve

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"buf.build/go/protovalidate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/theclaw/agents/internal/fault"
)

// validator checks requests against the rules in the .proto files. It is made at
// the first call and compiles a message's rules at its first use (about 2 ms and
// 0.3 ms here), so a start pays nothing.
type validator struct {
	get func() (protovalidate.Validator, error)
}

func newValidator() *validator {
	return &validator{sync.OnceValues(func() (protovalidate.Validator, error) { return protovalidate.New() })}
}

func (c *chain) validateUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if err := c.validate.check(req); err != nil {
		return nil, err
	}
	return next(ctx, req)
}

func (c *chain) validateStream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	return next(srv, &stream{ServerStream: ss, ctx: ss.Context(), check: c.validate.check})
}

// check names every field that breaks a rule.
func (v *validator) check(req any) error {
	m, ok := req.(proto.Message)
	if !ok {
		return fmt.Errorf("validate request: %T is not a message", req)
	}
	rules, err := v.get()
	if err != nil {
		return fmt.Errorf("make validator: %w", err)
	}
	err = rules.Validate(m)
	if err == nil {
		return nil
	}
	invalid, ok := errors.AsType[*protovalidate.ValidationError](err)
	if !ok || len(invalid.Violations) == 0 {
		return fmt.Errorf("validate request: %w", err)
	}
	e := fault.New(codes.InvalidArgument, fault.InvalidArgument, "", "correct the argument")
	for _, violation := range invalid.Violations {
		e.Fields = append(e.Fields, fault.Field{
			Name:    protovalidate.FieldPathString(violation.Proto.GetField()),
			Problem: violation.Proto.GetMessage(),
		})
	}
	e.What = e.Fields[0].Problem
	if e.Fields[0].Name != "" {
		e.What = e.Fields[0].Name + ": " + e.What
	}
	return e
}
