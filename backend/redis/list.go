package redis

import (
	"context"
	"slices"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/simba-lock/simba/lease"
)

// scanStep keys are looked at by the server at a time, so that a large store
// full of other things is not held up.
const scanStep = 1000

// List is [lease.Backend.List]. It goes through all keys of the store.
func (b *Backend) List(ctx context.Context) ([]string, error) {
	addrs, err := b.masters(ctx)
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for _, addr := range addrs {
		for cursor, more := uint64(0), true; more; more = cursor != 0 {
			var keys []string
			err := b.once(ctx, addr, false, func(lib *goredis.Client) (err error) {
				keys, cursor, err = lib.Scan(ctx, cursor, "simba:{*", scanStep).Result()
				return err
			})
			if err != nil {
				return nil, sorted(err)
			}
			for _, key := range keys {
				if name := mutexOf(key); name != "" {
					found[name] = true
				}
			}
		}
	}
	names := make([]string, 0, len(found))
	for name := range found {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

// mutexOf is the name in a key; empty if it is another program's.
func mutexOf(key string) string {
	rest, ok := strings.CutPrefix(key, "simba:{")
	if !ok {
		return ""
	}
	name, suffix, ok := strings.Cut(rest, "}")
	if !ok || suffix != "" && suffix != ":contender" && suffix != ":lease" || lease.CheckName(name) != nil {
		return ""
	}
	return name
}
