package admission_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/theclaw/agents/services/registry/internal/admission"
)

// S2-19: of 125 messages at once an account with the default rate takes 120; after a second one more. Others are not
// touched, what was not stored is given back, and without a rate all are taken.
func TestRateOfAnAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := admission.New(nil)
		taken := 0
		var wait time.Duration
		for range 125 {
			_, err := q.TakeAccount("tg", 60)
			switch {
			case err == nil:
				taken++
			case !errors.Is(err, admission.ErrRate):
				t.Fatal(err)
			default:
				wait = refused(t, err)
			}
		}
		if taken != 120 || wait != time.Second {
			t.Errorf("%d of 125 were taken, the next after %v", taken, wait)
		}
		if _, err := q.TakeAccount("dc", 60); err != nil {
			t.Errorf("another account: %v", err)
		}
		time.Sleep(wait)
		back, err := q.TakeAccount("tg", 60)
		if err != nil {
			t.Fatalf("after the wait: %v", err)
		}
		refused(t, takeOnly(q.TakeAccount("tg", 60)))
		back()
		if _, err := q.TakeAccount("tg", 60); err != nil {
			t.Errorf("after one was given back: %v", err)
		}
		for range 1000 {
			if _, err := q.TakeAccount("free", 0); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func takeOnly(_ func(), err error) error { return err }
