// Package balance connects to one of several registries that serve the same agents: a
// comma-separated list of targets, or a name with several addresses.
//
//	dns:///registries:7443              every address of the name
//	dns:///a:7443,dns:///b:7443         each of the list
//
// Calls go to registries that report SERVING (grpc.health.v1), so one that drains gets no
// new calls: a call about an agent goes to the registry nearest to it, by a hash of both
// names, any other call to each in turn. A call that finds its registry unavailable is
// retried at another one, if it is safe to repeat. A registry that hangs and is not dead
// costs a short call some seconds, then another is called; a long poll waits until the
// connection is closed, 15 s at most. A target that is neither, such as a socket, is dialed
// normally.
//
// That an agent has a nearest registry saves work and is no promise: the registry that
// wrote something need not read it again, and writers of one inbox wait for each other in
// one process, not in the database. Two calls in a row may reach two registries; nothing
// may rely on more.
package balance

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc"
	_ "google.golang.org/grpc/health" // asks those that are connected whether they serve
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/theclaw/agents/internal/rpc"
)

// Many reports whether a target may stand for several registries. The path of a socket
// may have a comma in it.
func Many(target string) bool {
	if strings.HasPrefix(target, "unix:") {
		return strings.Contains(target, ",unix:") // meant as a list, which Dial refuses
	}
	return strings.Contains(target, ",") || strings.HasPrefix(target, "dns:")
}

// Dial makes a connection to target, as rpc.Dial does to one. The caller closes it.
func Dial(target string, o rpc.DialOptions) (*grpc.ClientConn, error) {
	if !Many(target) {
		return rpc.Dial(target, o)
	}
	o.Several = policy
	o.More = append(slices.Clone(o.More), grpc.WithChainUnaryInterceptor(nearUnary, hasten(o.Safe)), grpc.WithChainStreamInterceptor(nearStream))
	if !strings.Contains(target, ",") {
		return rpc.Dial(target, o)
	}
	list := manual.NewBuilderWithScheme("several")
	var addresses []resolver.Address
	for part := range strings.SplitSeq(target, ",") {
		part = strings.TrimSpace(part)
		if strings.HasPrefix(part, "unix:") {
			return nil, fmt.Errorf("dial %s: a list is of dns:///host:port; a socket has the token of its own home", target)
		}
		addresses = append(addresses, resolver.Address{Addr: strings.TrimPrefix(part, "dns:///")})
	}
	list.InitialState(resolver.State{Addresses: addresses})
	o.More = append(o.More, grpc.WithResolvers(list))
	return rpc.Dial("several:///registries", o)
}
