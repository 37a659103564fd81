package redis

import (
	"context"
	"crypto/sha1" // what the server calls scripts by
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/simba-lock/simba/lease"
)

var (
	//go:embed lua/common.lua
	common string
	//go:embed lua/ownership.lua
	ownership string
	//go:embed lua/acquire.lua
	acquireText string
	//go:embed lua/renew.lua
	renewText string
	//go:embed lua/release.lua
	releaseText string
	//go:embed lua/revoke.lua
	revokeText string
	//go:embed lua/checkpoint.lua
	checkpointText string

	acquire    = newScript(&acquireText)
	renew      = newScript(&renewText)
	release    = newScript(&releaseText)
	revoke     = newScript(&revokeText)
	checkpoint = newScript(&checkpointText, checkpointKey)
)

// script is one writing operation. The server runs it in one atomic step.
type script struct {
	text, sha string
	more      []func(mutex string) string // keys beside the three of every script
}

// newScript puts it together when it is first needed.
func newScript(operation *string, more ...func(mutex string) string) func() script {
	return sync.OnceValue(func() script {
		text := common + ownership + *operation
		sum := sha1.Sum([]byte(text))
		return script{text, hex.EncodeToString(sum[:]), more}
	})
}

// run names the script and sends its text only to a server that lost it, or
// never had it: that one has executed nothing.
func (s script) run(ctx context.Context, lib *goredis.Client, mutex string, args ...any) (reply, error) {
	keys := []string{ownerKey(mutex), queueKey(mutex), leaseKey(mutex)}
	for _, key := range s.more {
		keys = append(keys, key(mutex))
	}
	r, err := lib.EvalSha(ctx, s.sha, keys, args...).Slice()
	if goredis.HasErrorPrefix(err, "NOSCRIPT") {
		r, err = lib.Eval(ctx, s.text, keys, args...).Slice()
	}
	if err == nil && len(r) == 0 {
		err = errNonsense
	}
	return r, err
}

// errNonsense: something else than a Redis answered, or a proxy changed it.
var errNonsense = errors.New("the server answers nonsense")

// reply is what a script returns: the state, and of most the rest of answer in
// ownership.lua, in its order.
type reply []any

func (r reply) state() string { return r.text(0) }

func (r reply) text(i int) string {
	if i >= len(r) {
		return ""
	}
	s, _ := r[i].(string)
	return s
}

func (r reply) number(i int) int64 {
	if i >= len(r) {
		return 0
	}
	n, _ := r[i].(int64)
	return n
}

func (r reply) millis(i int) time.Duration { return time.Duration(r.number(i)) * time.Millisecond }

// score is the contender's place in the queue, to be claimed again.
func (r reply) score() string { return r.text(12) }

// listeners is how many subscriptions the server has for the asker; -1 if it
// may not be asked, or was not.
func (r reply) listeners() int64 { return r.number(11) }

var states = map[string]lease.State{
	"mine": lease.Mine, "held": lease.Held, "promised": lease.Promised, "cooldown": lease.Cooldown, "gone": lease.Gone,
}

func (r reply) answer() (lease.Answer, error) {
	if r.state() == "spent" {
		return lease.Answer{}, lease.ErrSpent
	}
	state, known := states[r.state()]
	if !known || len(r) < 13 {
		return lease.Answer{}, errNonsense
	}
	a := lease.Answer{
		State: state, Owner: r.text(1), Info: readInfo(r.text(2)), Fence: uint64(max(0, r.number(3))),
		Birth: r.text(4), Remaining: r.millis(5), Lease: r.millis(6),
		Clock: time.Duration(r.number(7)) * time.Microsecond,
		Rank:  int(r.number(8)), LookBy: r.millis(9), Revoked: state == lease.Mine && r.number(10) == 1,
	}
	if r.number(5) == -1 {
		a.Remaining = lease.Forever
	}
	return a, nil
}

// readInfo reads what is only for people: nonsense there is no error.
func readInfo(text string) (i lease.Info) {
	if json.Unmarshal([]byte(text), &i) != nil {
		return lease.Info{}
	}
	return i
}

// ms rounds up: a lease is never shorter than what was asked for.
func ms(d time.Duration) int64 {
	return int64(math.Ceil(float64(d) / float64(time.Millisecond)))
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// errShort: too few replicas have it.
var errShort = errors.New("too few replicas have acknowledged")

// replicated waits, on the connection that wrote, until enough replicas have
// what it wrote.
func (b *Backend) replicated(ctx context.Context, lib *goredis.Client, span time.Duration) error {
	if b.set.replicas == 0 {
		return nil
	}
	limit := min(max(span/8, 50*time.Millisecond), time.Second)
	n, err := lib.Do(ctx, "WAIT", b.set.replicas, ms(limit)).Int()
	if errors.Is(err, errGone) {
		err = errLost // of what was written before something is known, so it is not made again
	}
	if err == nil && n < b.set.replicas {
		err = fmt.Errorf("%w: %d of %d within %v", errShort, n, b.set.replicas, limit)
	}
	return err
}
