package lease

import "time"

// pollEvery bounds how late a timer without the right clock can fire after a
// suspend of the machine.
const pollEvery = 250 * time.Millisecond

// polled is a timer for where the kernel has none of the right clock: it sleeps
// by the runtime's clock in short pieces and reads the right one in between.
func polled(c Clock, t Instant, done chan struct{}) (<-chan struct{}, func()) {
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			left := t - c.Now()
			if left <= 0 {
				close(done)
				return
			}
			tm := time.NewTimer(min(left, pollEvery))
			select {
			case <-tm.C:
			case <-quit:
				tm.Stop()
				return
			}
		}
	}()
	return done, func() {
		close(quit)
		<-ended
	}
}
