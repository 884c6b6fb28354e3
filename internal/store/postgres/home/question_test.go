package home_test

import (
	"testing"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/home"
	"github.com/theclaw/agents/internal/store/storetest"
)

// S3-48: questions among several registries.
func TestQuestions(t *testing.T) {
	_, pool := opened(t)
	storetest.Questions(t, func(*testing.T) store.Questions { return home.New(pool) })
}
