package serve

import "google.golang.org/grpc/health"

// Health lets a test look at the status while no new call gets in.
func Health(s *Server) *health.Server { return s.health }

// Shave is the deadline rule alone.
var Shave = shave
