package wire

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/rpc"
)

// CheckRole returns an error with the reason PERMISSION_DENIED when the caller is a service
// of another role than the one that works on a resource: agent/* is a runner's, deliver/* a
// deliverer's, channel/* a gateway's. The owner may do what each service may.
func CheckRole(ctx context.Context, resource string) error {
	id, _ := rpc.IdentityFrom(ctx)
	if id.Kind == rpc.Owner || id.Role() != "" && id.Role() == lease.RoleOf(resource) {
		return nil
	}
	return fault.New(codes.PermissionDenied, fault.PermissionDenied,
		fmt.Sprintf("%s may not use a lease of %.160s", caller(id), resource), "a runner uses leases of agent/*, a deliverer those of deliver/*, a gateway those of channel/*")
}

// CheckHolder is CheckRole, and returns an error with the same reason when the holder of the
// lease is a process of another service name than the one that the caller has proved: of a
// holder runner-2-... only runner-2 may renew and release a lease.
func CheckHolder(ctx context.Context, resource, holder string) error {
	if err := CheckRole(ctx, resource); err != nil {
		return err
	}
	id, _ := rpc.IdentityFrom(ctx)
	if id.Kind == rpc.Owner || lease.ServiceOf(holder) == id.Name {
		return nil
	}
	return fault.New(codes.PermissionDenied, fault.PermissionDenied,
		fmt.Sprintf("%s is not %.160s, which holds the lease of %.160s", caller(id), holder, resource),
		"a lease is acquired, renewed and released by its holder, under its own certificate or token")
}

func caller(id rpc.Identity) string {
	if id.Name != "" {
		return id.Name
	}
	return "the caller"
}
