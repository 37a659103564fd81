package cmd

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/simba-lock/simba/lease"
)

// token is what acquire hands out: all that another process needs to renew, check or
// release the lease. It is no secret worth more than the way to the backend: whoever has
// that can do the same with what status prints.
type token struct {
	Mutex   string `json:"m"`
	Owner   string `json:"o"` // whole id
	Fence   uint64 `json:"f"`
	Backend string `json:"b"` // its name, in which there is no password
	TTL     int64  `json:"t"` // as asked, in ns
	Rest    int64  `json:"x"` // transition
	// HoldEnd is when others may have it though it was released, by the wall clock of
	// the host that asked, in ms; 0: no such wish.
	HoldEnd int64     `json:"h,omitempty"`
	Keeper  *keeperAt `json:"k,omitempty"` // nil: the store alone keeps the lease
}

// keeperAt is where the process is that keeps a lease.
type keeperAt struct {
	PID     int    `json:"p"`
	Started int64  `json:"t,omitempty"` // see watched
	Host    string `json:"n"`
	World   string `json:"w,omitempty"` // see world
	Socket  string `json:"s"`
}

const (
	tokenMark = "simba1_"
	maxToken  = 4096
)

var errToken = errors.New("not a token of simba acquire")

// String is one printable word. Its last bytes are a checksum, since tokens are cut and
// pasted.
func (t *token) String() string {
	b, _ := json.Marshal(t) // strings and numbers only
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	return tokenMark + base64.RawURLEncoding.EncodeToString(b)
}

func parseToken(s string) (t token, err error) {
	body, ok := strings.CutPrefix(s, tokenMark)
	if !ok || len(s) > maxToken {
		return t, errToken
	}
	b, err := base64.RawURLEncoding.DecodeString(body)
	n := len(b) - crc32.Size
	if err != nil || n < 0 || binary.BigEndian.Uint32(b[n:]) != crc32.ChecksumIEEE(b[:n]) {
		return t, fmt.Errorf("%w: it is cut off, or was changed", errToken)
	}
	if err := json.Unmarshal(b[:n], &t); err != nil {
		return t, errToken
	}
	if !t.sound() {
		return t, errToken
	}
	return t, nil
}

// sound: it can have come from acquire.
func (t *token) sound() bool {
	const maxOwner = 128
	_, err := lease.NewTerms(max(time.Duration(t.TTL), 0), max(time.Duration(t.Rest), 0), 0)
	odd := func(r rune) bool { return r <= ' ' || r > '~' }
	return err == nil && lease.CheckName(t.Mutex) == nil && t.Backend != "" &&
		t.Owner != "" && len(t.Owner) <= maxOwner && !strings.ContainsFunc(t.Owner, odd) && !strings.Contains(t.Owner, "@@") &&
		(t.Keeper == nil || filepath.IsAbs(t.Keeper.Socket))
}

// terms are those that acquire was asked for, or others in their place. Nothing has to be
// ended before the lease does, so all of it may be used.
func (t *token) terms(ttl, transition time.Duration) (lease.Terms, error) {
	if ttl == lease.Unset {
		ttl = time.Duration(t.TTL)
	}
	if transition == lease.Unset {
		transition = time.Duration(t.Rest)
	}
	return lease.NewTerms(ttl, transition, 0)
}

// restOfHold is how long others are still to be kept from the mutex.
func (t *token) restOfHold() time.Duration {
	if t.HoldEnd == 0 {
		return 0
	}
	return max(time.Until(time.UnixMilli(t.HoldEnd)), 0)
}

// tokenFlags are those of the commands that are given a token.
type tokenFlags struct {
	backendFlags
	file string
	token
}

const (
	tokenFileFlag = "token-file"
	tokenVariable = "SIMBA_TOKEN"
)

func (f *tokenFlags) add(flags *pflag.FlagSet) {
	f.backendFlags.add(flags)
	flags.StringVar(&f.file, tokenFileFlag, "", "`file` in which the token is, instead of an argument")
}

// complete finds the token, in an argument, the file named, or their variables.
func (f *tokenFlags) complete(a *app, flags *pflag.FlagSet, args []string) (err error) {
	var text string
	from := "the argument"
	inEnv, set := a.getenv(tokenVariable)
	switch {
	case len(args) > 1:
		return usagef("one token is needed, not %d", len(args))
	case len(args) == 1 && flags.Changed(tokenFileFlag):
		return usagef("give the token either as an argument or with --%s, not both", tokenFileFlag)
	case len(args) == 1:
		text = args[0]
	case set && !flags.Changed(tokenFileFlag):
		text, from = inEnv, tokenVariable
	default:
		if err := a.fromEnv(flags, tokenFileFlag); err != nil {
			return err
		}
		if f.file == "" {
			return usagef("no token given: as an argument, with --%s or in %s", tokenFileFlag, tokenVariable)
		}
		b, _, err := readSmall(f.file)
		if err != nil {
			return usagef("--%s: %w", tokenFileFlag, err)
		}
		text, from = string(bytes.TrimSpace(b)), f.file
	}
	if f.token, err = parseToken(text); err != nil {
		return usagef("%s: %w", from, err)
	}
	if err := a.settle(flags, &f.backendFlags, f.Mutex, backendFlagNames...); err != nil {
		return err
	}
	a.log = a.log.With(keyMutex, f.Mutex)
	return f.check()
}

// open also makes sure that this is the token's backend: another one would say that
// nobody owns the mutex.
func (f *tokenFlags) open(ctx context.Context) (lease.Backend, error) {
	b, err := f.backendFlags.open(ctx)
	if err != nil {
		return nil, err
	}
	if b.Name() != f.Backend {
		_ = b.Close()
		return nil, usagef("the token is of the backend %s, not of %s: say so with --backend or SIMBA_BACKEND",
			escape(f.Backend), escape(b.Name()))
	}
	return b, nil
}

// session is one for the owner's id, in the place of the one that acquired the mutex.
func (f *tokenFlags) session(b lease.Backend) lease.Session {
	return b.Session(f.Mutex, lease.Contender{ID: f.Owner, Info: lease.Info{Host: lease.Host()}})
}

// attempt bounds one call, so that one which goes astray leaves time for another.
const attempt = 2 * time.Second

// persist makes a call until it is answered, cannot succeed, or limit is over.
func persist[T any](ctx context.Context, limit time.Duration, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var last error
	for fails := 0; ; fails++ {
		got, err := within(ctx, max(attempt, limit/2), call)
		if err == nil || lease.IsPermanent(err) {
			return got, err
		}
		if last == nil || !errors.Is(err, context.DeadlineExceeded) {
			last = err // one that was given up says less than the one before
		}
		if err := pause(ctx, rand.N(min(50*time.Millisecond<<min(fails, 5), time.Second))); err != nil {
			return got, last
		}
	}
}

// lostError says who owns a mutex now that was held under a token.
func lostError(why string) error {
	return &coded{fmt.Errorf("the lease is not held any more: %s", why), exitLost}
}

// notOwner says who owns the mutex instead; empty if the token's owner does.
func (t *token) notOwner(s *lease.Snapshot) string {
	switch owner := ownerOf(*s); {
	case s.State == lease.Held && s.Owner == t.Owner:
		return ""
	case s.State == lease.Held && owner != "" && owner != nobodyKnows:
		return who(s.Owner, s.Info) + " owns it now"
	case s.State == lease.Held:
		return "somebody else owns it now"
	case s.State == lease.Cooldown:
		return "nobody owns it, and nobody may have it for another " + left(s.Lease)
	case s.Last == t.Owner && s.Released:
		return "it was released"
	}
	return "nobody owns it"
}
