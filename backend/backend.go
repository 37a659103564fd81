// Package backend opens the store of mutexes that a URL names.
package backend

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/simba-lock/simba/backend/file"
	"github.com/simba-lock/simba/backend/mysql"
	"github.com/simba-lock/simba/backend/redis"
	"github.com/simba-lock/simba/backend/zookeeper"
	"github.com/simba-lock/simba/lease"
)

// ErrURL says that the URL does not name a backend. It is a mistake of the
// caller's; no text of it contains the URL, which may contain a password.
var ErrURL = errors.New("not a backend")

// Options are what only some backends need.
type Options struct {
	// LiveGuards finds the processes that watch over a running job and carry a
	// tag made by [Tag] (file backend).
	LiveGuards func(tag string) ([]int, error)
	// Password is used instead of the one in the URL, if it is not empty.
	Password string
}

// schemes is for people who mistyped one.
const schemes = "file:, redis:, rediss:, redis+unix:, redis+sentinel:, redis+cluster:, mysql:, zk:"

// Open prepares a backend. It makes no connection: the first call does.
func Open(ctx context.Context, rawURL string, o Options) (lease.Backend, error) {
	scheme, _, ok := strings.Cut(rawURL, ":")
	if !ok && strings.TrimSpace(rawURL) != "" {
		return nil, fmt.Errorf("%w: it has no scheme; there are: %s", ErrURL, schemes)
	}
	switch kind, _, _ := strings.Cut(scheme, "+"); kind {
	case "redis", "rediss":
		b, err := redis.Open(ctx, rawURL, redis.Options{Password: o.Password})
		return opened(b, err)
	case "mysql":
		b, err := mysql.Open(rawURL, mysql.Options{Password: o.Password})
		return opened(b, err)
	case "zk":
		b, err := zookeeper.Open(rawURL, zookeeper.Options{Password: o.Password})
		return opened(b, err)
	}
	u, err := parse(rawURL)
	if err != nil {
		return nil, err
	}
	if u.Scheme != "file" {
		return nil, fmt.Errorf("%w: the scheme is unknown; there are: %s", ErrURL, schemes)
	}
	dir, private, err := directory(ctx, u)
	if err != nil {
		return nil, err
	}
	return file.New(dir, file.Options{LiveGuards: o.LiveGuards, Private: private}), nil
}

// opened is what a driver that makes no connection when it is opened can say:
// an error is one of the URL.
func opened[B lease.Backend](b B, err error) (lease.Backend, error) {
	if err != nil {
		return nil, urlError{err}
	}
	return b, nil
}

// urlError is a driver's, which says itself what the URL is not.
type urlError struct{ error }

func (e urlError) Unwrap() error        { return e.error }
func (e urlError) Is(target error) bool { return target == ErrURL }

// Tag is the word that a guard carries for a mutex of this backend, by which
// others find it; empty if the backend needs none.
func Tag(ctx context.Context, rawURL, mutex string) (string, error) {
	if !strings.HasPrefix(rawURL, "file:") {
		return "", nil
	}
	u, err := parse(rawURL)
	if err != nil {
		return "", err
	}
	dir, _, err := directory(ctx, u)
	if err != nil {
		return "", err
	}
	return file.Tag(dir, mutex), nil
}

// Transition is the transition for a ttl on this backend when none is asked for.
// ZooKeeper knows the start of a lease less exactly, and takes none that is longer
// than the ttl.
func Transition(rawURL string, ttl time.Duration) time.Duration {
	if ttl == lease.Unset {
		ttl = lease.DefaultTTL
	}
	d := lease.DefaultTransition(ttl)
	if strings.HasPrefix(rawURL, "zk:") {
		d = min(d, ttl)
	}
	return d
}

// Schema is the statements that make what a backend needs and may not make itself;
// empty if it needs none.
func Schema(rawURL string) string {
	if strings.HasPrefix(rawURL, "mysql:") {
		return mysql.Schema()
	}
	return ""
}

// Warnings says what is doubtful about a backend, for people.
func Warnings(ctx context.Context, b lease.Backend) []string {
	if w, ok := b.(interface {
		Warnings(context.Context) []string
	}); ok {
		return w.Warnings(ctx)
	}
	return nil
}

// parse keeps what it was given out of its errors: url.Parse quotes it.
func parse(rawURL string) (*url.URL, error) {
	if strings.TrimSpace(rawURL) == "" {
		return nil, fmt.Errorf("%w: it is empty", ErrURL)
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("%w: it is not a well-formed URL", ErrURL)
	}
	return u, nil
}

// directory is the one that a file URL names. Relative paths would mean another
// directory in every working directory, so there are none.
func directory(ctx context.Context, u *url.URL) (dir string, private bool, err error) {
	switch {
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return "", false, fmt.Errorf("%w: a file URL has no options (write ? and # in a path as %%3F and %%23)", ErrURL)
	case u.Opaque != "":
		return "", false, fmt.Errorf("%w: a file URL needs an absolute path: file:///directory", ErrURL)
	case u.User != nil || u.Host != "":
		return "", false, fmt.Errorf("%w: a file URL has no host: file:///directory, with three slashes", ErrURL)
	case u.Path == "":
		if dir, err = file.DefaultDir(ctx); err != nil {
			return "", false, fmt.Errorf("%w: %w", ErrURL, err)
		}
		return dir, true, nil
	case !filepath.IsAbs(u.Path) || strings.ContainsRune(u.Path, 0):
		return "", false, fmt.Errorf("%w: a file URL needs an absolute path: file:///directory", ErrURL)
	case filepath.Clean(u.Path) == "/":
		return "", false, fmt.Errorf("%w: the root directory is no place for mutexes", ErrURL)
	}
	return filepath.Clean(u.Path), false, nil
}
