package file

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// fingerprint changes with what can be seen of the mutexes; with none named, of all.
func (b *Backend) fingerprint(ctx context.Context, mutexes []string) string {
	var text strings.Builder
	if len(mutexes) == 0 {
		var err error
		if mutexes, err = b.List(ctx); err != nil {
			fmt.Fprintln(&text, err)
		}
	}
	for _, m := range mutexes {
		s, err := b.Inspect(ctx, m)
		fmt.Fprintln(&text, s, err)
	}
	return text.String()
}

// scene is what Watch watches: the store, and of each mutex its directory, in
// which the lock is closed and the record replaced, and its queue.
func (b *Backend) scene(ctx context.Context, mutexes []string) sight {
	var v sight
	v.add(b.dir, entering)
	if v.blind {
		return v
	}
	dirs := make([]string, 0, len(mutexes))
	for _, m := range mutexes {
		dirs = append(dirs, escape(m))
	}
	if len(mutexes) == 0 {
		dirs = b.directories(ctx) // also of mutexes that nobody has locked yet
	}
	for _, d := range dirs {
		dir := filepath.Join(b.dir, d)
		// What is missing is made in a directory that is watched.
		quiet := v.blind
		v.add(dir, closing)
		v.add(filepath.Join(dir, queueName), closing)
		v.blind = quiet
	}
	return v
}

// directories are the names of all that may be a mutex.
func (b *Backend) directories(ctx context.Context) []string {
	p := &place{b: b, root: -1, dir: -1}
	defer p.close()
	if ctx.Err() != nil || p.openRoot(false) != nil {
		return nil
	}
	names, _ := readNames(p.root)
	return slices.DeleteFunc(names, func(n string) bool { return strings.HasPrefix(n, ".") })
}
