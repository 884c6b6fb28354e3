package serve

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc"

	"github.com/theclaw/agents/internal/rpc"
)

// Rule says who may call a method and what kind of call it is. The zero value
// allows nobody.
type Rule struct {
	Kinds      []rpc.Kind // who may call
	Services   []string   // which services, where Kinds has rpc.Service: their roles
	Public     bool       // no token needed; on a Unix socket still our user id
	Waits      bool       // waits by design (long poll): never logged as slow
	EndOnDrain bool       // its context ends when the server drains
}

// Policy is the access table: full method ("/package.Service/Method") to rule.
type Policy map[string]Rule

// Allow is the rule for the given kinds, which are not services.
func Allow(kinds ...rpc.Kind) Rule { return Rule{Kinds: kinds} }

// To is r for these services too, such as runner.
func (r Rule) To(roles ...string) Rule {
	r.Kinds = append(slices.Clone(r.Kinds), rpc.Service)
	r.Services = append(slices.Clone(r.Services), roles...)
	return r
}

// builtin are the rules of what Serve registers itself; a Policy may override them.
var builtin = Policy{
	"/grpc.health.v1.Health/Check":                                   {Public: true},
	"/grpc.health.v1.Health/List":                                    {Public: true},
	"/grpc.health.v1.Health/Watch":                                   {Public: true, Waits: true, EndOnDrain: true},
	"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo":      {Kinds: []rpc.Kind{rpc.Owner}, Waits: true, EndOnDrain: true},
	"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": {Kinds: []rpc.Kind{rpc.Owner}, Waits: true, EndOnDrain: true},
}

// with returns p over the built-in rules.
func (p Policy) with() Policy {
	all := maps.Clone(builtin)
	maps.Copy(all, p)
	return all
}

// check names every registered method without a rule.
func (p Policy) check(services map[string]grpc.ServiceInfo) error {
	var missing []string
	for name, info := range services {
		for _, m := range info.Methods {
			if full := "/" + name + "/" + m.Name; !p.has(full) {
				missing = append(missing, full)
			}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	return fmt.Errorf("no access rule for %s", strings.Join(missing, ", "))
}

func (p Policy) has(method string) bool { _, ok := p[method]; return ok }
