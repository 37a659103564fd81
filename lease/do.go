package lease

import "context"

// Do contends for the mutex, does the work while it is held, and releases it.
//
// Its error is nil or the work's own if ownership lasted; ErrLost (joined with
// the work's) if it did not; *BusyError if the mutex stayed busy;
// ErrUnreachable, or what IsPermanent recognises, if the backend did not let
// it; ErrTerms if the backend grants a lease in which the terms do not fit; the
// cause of ctx if that ended while it waited.
func Do(ctx context.Context, cfg Config, work Work) error {
	panic("under construction")
}
