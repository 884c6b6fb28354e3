package registry

import (
	"context"

	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// identities returns IdentityService. What is to be done is done by the auditor,
// which every call passes on its way here.
type identities struct {
	registryv1.UnimplementedIdentityServiceServer
}

// NoteIdentityChange is called when the change is on record.
func (identities) NoteIdentityChange(context.Context, *registryv1.NoteIdentityChangeRequest) (*registryv1.NoteIdentityChangeResponse, error) {
	return &registryv1.NoteIdentityChangeResponse{}, nil
}
