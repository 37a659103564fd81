package cmd

import (
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/simba-lock/simba/internal/guard"
)

// onSignals calls f with each signal that would end simba, and with those given, but for
// those that it was told to ignore, as under nohup. drop ends that and waits for f.
func onSignals(f func(syscall.Signal), more ...syscall.Signal) (drop func()) {
	c := make(chan os.Signal, 8)
	for _, sig := range append(more, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT) {
		if signal.Ignored(sig) {
			continue
		}
		if sig == syscall.SIGQUIT {
			guard.TakeQuit()
		}
		signal.Notify(c, sig)
	}
	var calls sync.WaitGroup
	calls.Go(func() {
		for sig := range c {
			f(sig.(syscall.Signal))
		}
	})
	return func() {
		signal.Stop(c)
		close(c)
		calls.Wait()
	}
}
