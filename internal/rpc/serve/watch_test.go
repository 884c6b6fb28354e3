package serve

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// One bad moment is none; what lasts is told once, and its end once, also when the
// service does not answer at all.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		answers := []error{nil, broken, nil, broken, broken, broken, context.DeadlineExceeded, nil, nil}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		n := 0
		var told []error
		watchService(ctx, func(ctx context.Context) error {
			defer func() { n++ }()
			if n == len(answers) {
				cancel()
				return broken
			}
			if errors.Is(answers[n], context.DeadlineExceeded) {
				<-ctx.Done()
				return ctx.Err()
			}
			return answers[n]
		}, func(err error) { told = append(told, err) })
		if len(told) != 2 || !errors.Is(told[0], broken) || told[1] != nil {
			t.Errorf("told %v", told)
		}
		if n != len(answers)+1 {
			t.Errorf("asked %d times", n)
		}
	})
}
