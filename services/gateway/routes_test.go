package gateway

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"
)

// A route without a rule keeps the service from starting.
func TestRouteWithoutRule(t *testing.T) {
	if _, err := handler([]route{{pattern: "GET /open", handler: http.NotFoundHandler()}}, front{}, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "GET /open") {
		t.Error(err)
	}
	if _, err := handler((&Service{}).routes(), front{}, slog.New(slog.DiscardHandler)); err != nil {
		t.Error(err)
	}
}
