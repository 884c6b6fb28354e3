package world_test

import (
	"log/slog"
	"os"
)

func dbg() *slog.Logger {
	f, _ := os.Create("/tmp/e2e/log.txt")
	return slog.New(slog.NewTextHandler(f, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
