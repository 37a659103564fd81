package redis

import (
	"context"
	"encoding/json"
	"slices"
	"sync/atomic"

	goredis "github.com/redis/go-redis/v9"

	"github.com/simba-lock/simba/lease"
)

var (
	_ lease.Backend  = (*Backend)(nil)
	_ lease.Examiner = (*Backend)(nil)
	_ lease.Session  = (*session)(nil)
)

// Options are what does not stand in the URL.
type Options struct {
	// Password, if not empty, is used instead of the URL's.
	Password string
}

// Backend keeps mutexes in a Redis.
type Backend struct {
	set    settings
	routes routes
	shelf  shelf
	known  atomic.Pointer[string] // the master that the sentinels named
	avoid  atomic.Pointer[string] // the last one that proved wrong
}

// Open reads the URL. It makes no connection: the first call does. Errors are
// ErrURL.
func Open(_ context.Context, rawURL string, o Options) (*Backend, error) {
	set, err := parse(rawURL, o.Password)
	if err != nil {
		return nil, err
	}
	b := &Backend{set: set}
	b.routes.owners = make(map[string]string)
	b.routes.nodes = slices.Clone(set.hosts)
	if set.kind == sentinel {
		b.routes.nodes = []string{"the master"} // found when it is dialed
	}
	return b, nil
}

// Name is the URL without its passwords.
func (b *Backend) Name() string { return b.set.name }

// Session is [lease.Backend.Session].
func (b *Backend) Session(mutex string, c lease.Contender) lease.Session {
	info, err := json.Marshal(c.Info)
	if err != nil {
		info = []byte("{}") // a time that JSON cannot write; nothing is decided by it
	}
	return &session{b: b, mutex: mutex, id: c.ID, info: string(info)}
}

// Revoke is [lease.Backend.Revoke].
func (b *Backend) Revoke(ctx context.Context, mutex, owner string) error {
	var r reply
	err := b.on(ctx, mutex, func(lib *goredis.Client) (err error) {
		r, err = revoke().run(ctx, lib, mutex, owner)
		return err
	})
	switch {
	case err != nil:
		return err
	case r.state() == "foreign":
		return lease.ErrForeign
	case r.state() == "other":
		return lease.ErrNotOwner
	}
	return nil
}

// Close is [lease.Backend.Close].
func (b *Backend) Close() error {
	b.shelf.drop("", true)
	return nil
}

// The keys of a mutex, and the channels of the same names.
func ownerKey(mutex string) string      { return "simba:{" + mutex + "}" }
func queueKey(mutex string) string      { return ownerKey(mutex) + ":contender" }
func leaseKey(mutex string) string      { return ownerKey(mutex) + ":lease" }
func checkpointKey(mutex string) string { return ownerKey(mutex) + ":checkpoint" }
func bell(mutex, waiter string) string  { return ownerKey(mutex) + ":" + waiter }
