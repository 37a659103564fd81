package redis

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/simba-lock/simba/backend/backendtest"
	"github.com/simba-lock/simba/lease"
)

// documented are the rights that docs/redis.md has for an account.
func documented(t *testing.T, account string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(page)) {
		if rights, ok := strings.CutPrefix(line, "ACL SETUSER "+account+" on >secret "); ok {
			return strings.TrimSpace(rights)
		}
	}
	t.Fatalf("there is no account %s in the documents", account)
	return ""
}

// The rights in the documents are enough for everything, and those for one that only looks
// are enough for that.
func TestDocumentedRights(t *testing.T) {
	const hold = time.Minute
	w := newWorld(t, backendtest.RedisOptions{AOF: true, ACL: "user default on nopass ~* &* +@all\n" +
		"user app on >secret " + documented(t, "app") + "\n" +
		"user doctor on >secret " + documented(t, "app") + " +info +config|get +acl|whoami\n" +
		"user viewer on >secret " + documented(t, "viewer") + "\n"})
	b, viewer := open(t, "redis://app:secret@"+w.r.Addr), open(t, "redis://viewer:secret@"+w.r.Addr)
	p, q := contender(t, b, "m", "p"), contender(t, b, "m", "q")
	mine := p.keep(hold)
	p.text("", "a", "a")
	p.text("a", "", "")
	bells := q.wait()
	p.renew(lease.RenewRequest{Fence: mine.Fence, Hold: hold})
	if err := b.Revoke(t.Context(), "m", p.id); err != nil {
		t.Error(err)
	}
	p.release()
	w.r.Do("DEL", ownerKey("m"))
	is(t, q.try(), lease.Cooldown, "")
	if w.r.Number("EXISTS", ownerKey("m")) != 1 {
		t.Error("the string cannot be put back")
	}
	for _, b := range []*Backend{b, viewer} {
		if s, err := b.Inspect(t.Context(), "m"); err != nil || s.State != lease.Cooldown || s.Lease < hold-10*time.Second {
			t.Errorf("%+v, %v", s, err)
		}
		if names, err := b.List(t.Context()); err != nil || len(names) != 1 {
			t.Errorf("%q, %v", names, err)
		}
	}
	bells.silent()
	if lines := examined(t, "redis://doctor:secret@"+w.r.Addr); advised(lines) != 0 {
		t.Error(strings.Join(lines, "\n"))
	}
}
