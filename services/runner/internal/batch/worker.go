package batch

import "time"

// workerIdle is how long a goroutine without a lane is kept.
const workerIdle = 100 * time.Millisecond

// run runs a lane in a goroutine that has none, or in a new one. A turn goes deep into its
// stack: in a goroutine that is new for each message the copies of a growing stack took
// 4 % of the CPU.
func (b *Batch) run(lane func()) {
	b.wg.Add(1)
	select {
	case b.idle <- lane:
	default:
		go b.worker(lane)
	}
}

func (b *Batch) worker(lane func()) {
	timer := time.NewTimer(workerIdle)
	defer timer.Stop()
	for {
		func() {
			defer b.wg.Done()
			lane()
		}()
		timer.Reset(workerIdle)
		select {
		case lane = <-b.idle:
		case <-timer.C:
			return
		case <-b.stop.Done():
			return
		}
	}
}
