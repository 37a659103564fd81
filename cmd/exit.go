package cmd

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/simba-lock/simba/backend"
	"github.com/simba-lock/simba/internal/guard"
	"github.com/simba-lock/simba/lease"
)

// exitCode is an exit status of simba's own. The job's own status is passed on
// as it is, by an *ended.
type exitCode int

const (
	exitOK          exitCode = 0
	exitFree        exitCode = 1 // status -q: nobody holds it
	exitUsage       exitCode = 64
	exitUnavailable exitCode = 69
	exitFault       exitCode = 70
	exitBusy        exitCode = 75 // unless --busy-exit-code says otherwise
	exitLost        exitCode = 79
	exitTimeout     exitCode = 124
	exitNotRunnable exitCode = 126
	exitNotFound    exitCode = 127
	exitSignal      exitCode = 128 // + the signal's number
)

// usageError is a mistake of whoever typed the command. Nothing was touched yet.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &usageError{err: fmt.Errorf(format, args...)}
}

// ended is the end of a job, or of simba by a signal: there is nothing to say
// about it, it is only passed on.
type ended struct {
	code exitCode
	sig  syscall.Signal // die of it, so that the caller sees the same as without simba
}

func (e *ended) Error() string {
	if e.sig != 0 {
		return fmt.Sprintf("ended by signal %d", int(e.sig))
	}
	return fmt.Sprintf("exit status %d", int(e.code))
}

// coded gives an error an exit status that its kind alone does not tell.
type coded struct {
	error
	code exitCode
}

func (e *coded) Unwrap() error { return e.error }

// statusOf is the one place that maps errors to exit statuses.
func statusOf(err error) exitCode {
	var end *ended
	var code *coded
	var usage *usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &end):
		if end.sig != 0 {
			return exitSignal + exitCode(end.sig)
		}
		return end.code
	case errors.As(err, &code):
		return code.code
	case errors.As(err, &usage), errors.Is(err, lease.ErrTerms), errors.Is(err, lease.ErrName),
		errors.Is(err, backend.ErrURL):
		return exitUsage
	case errors.Is(err, guard.ErrNotFound):
		return exitNotFound
	case errors.Is(err, guard.ErrNotRunnable):
		return exitNotRunnable
	case errors.Is(err, lease.ErrLost):
		return exitLost
	case errors.Is(err, lease.ErrBusy):
		return exitBusy
	case errors.Is(err, lease.ErrUnreachable), lease.IsPermanent(err):
		return exitUnavailable
	}
	return exitFault
}
