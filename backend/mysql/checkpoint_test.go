package mysql_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/simba-lock/simba/backend/mysql"
	"github.com/simba-lock/simba/lease"
)

func (k *keeper) text(from, to, want string) {
	k.t.Helper()
	if got, err := k.Checkpoint(k.t.Context(), from, to); err != nil || got != want {
		k.t.Errorf("checkpoint %q -> %q: %q, %v; want %q", from, to, got, err, want)
	}
}

// The table of a version before checkpoints: everything else works there, a checkpoint
// adds the column if it may, and says what has to be run if not.
func TestCheckpointInAnOlderTable(t *testing.T) {
	t.Parallel()
	m := server(t)
	name, root := m.Database(t)
	exec(t, root, mysql.Schema())
	exec(t, root, "ALTER TABLE simba_lease DROP COLUMN checkpoint")
	a := newArena(t, 2*time.Second, 2*time.Second)
	if err := a.run(t.Context(), open(t, m.URL(name)), "run", 0); err != nil {
		t.Fatal(err)
	}
	k := newKeeper(t, open(t, m.URL(name)), 10*time.Second, 0)
	mine := k.own()
	_, err := k.Checkpoint(t.Context(), "", "a")
	if !lease.IsPermanent(err) || !strings.Contains(err.Error(), "ALTER command denied") ||
		!strings.Contains(err.Error(), "once:\nALTER TABLE simba_lease ADD COLUMN checkpoint ") {
		t.Errorf("without the right: %v", err)
	}
	k.renew(lease.RenewRequest{Fence: mine.Fence})
	k.release(false)

	user := "alter" + name
	exec(t, root, fmt.Sprintf("CREATE USER %[1]s IDENTIFIED BY 'pw'; GRANT SELECT, INSERT, UPDATE, ALTER ON %[2]s.* TO %[1]s", user, name))
	t.Cleanup(func() { m.Exec(t, "DROP USER "+user) })
	b := open(t, "mysql://"+user+":pw@"+m.Addr+"/"+name)
	k = newKeeper(t, b, 10*time.Second, 0)
	k.own()
	var wg sync.WaitGroup
	for range 4 { // one of them makes it, the others find it
		wg.Go(func() { k.text("", "a", "a") })
	}
	wg.Wait()
	k.text("a", "b", "b")
	k.release(false)
	// It is the column that the statements in the documents make.
	printed, into := m.Database(t)
	exec(t, into, mysql.Schema())
	var differ int
	if err := into.QueryRow(`SELECT COUNT(*) FROM (
		SELECT column_type, collation_name, column_default, is_nullable, column_comment, ordinal_position, COUNT(*) AS n
		FROM information_schema.columns WHERE table_schema IN (?, ?) AND column_name = 'checkpoint' GROUP BY 1, 2, 3, 4, 5, 6) AS c WHERE n <> 2`,
		name, printed).Scan(&differ); err != nil || differ != 0 {
		t.Errorf("it differs: %v", err)
	}
}

// A row or a table that an administrator locked keeps a checkpoint no longer than its
// context, and neither it nor the lock keeps a renewal of another mutex.
func TestCheckpointLocked(t *testing.T) {
	t.Parallel()
	m := server(t)
	for what, locks := range map[string][3]string{
		"row":   {"START TRANSACTION", "UPDATE simba_lease SET rev = rev + 1", "ROLLBACK"},
		"table": {"DO 0", "LOCK TABLES simba_mutex WRITE, simba_lease WRITE", "UNLOCK TABLES"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			name, root := m.Database(t)
			k := newKeeper(t, open(t, m.URL(name)), 30*time.Second, 0)
			k.own()
			k.text("", "a", "a")
			run := administrator(t, root)
			run(locks[0])
			run(locks[1])
			endsWithItsContext(t, "a checkpoint", func(ctx context.Context) error {
				_, err := k.Checkpoint(ctx, "a", "b")
				return err
			})
			run(locks[2])
			// What was given up may have been done late, once.
			got, err := k.Checkpoint(t.Context(), "a", "b")
			if err != nil || got != "b" {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

// Checkpoints go beside everything else that an owner does, on a connection whose
// doorbell stands, and one that is stuck holds up no renewal.
func TestCheckpointBeside(t *testing.T) {
	t.Parallel()
	m := server(t)
	name, root := m.Database(t)
	b := open(t, m.URL(name))
	a := newArena(t, 2*time.Second, time.Second)
	work := func(ctx context.Context, h *lease.Holder) error {
		text, end := "", time.Now().Add(2*a.terms.Lease())
		for i := 0; time.Now().Before(end); i++ {
			to := fmt.Sprint(i)
			got, err := h.Checkpoint(ctx, text, to)
			if got == "stuck" { // what was given up may be done late, but whole
				got, err = h.Checkpoint(ctx, got, to)
			}
			if err != nil || got != to {
				return fmt.Errorf("%q -> %q: %q, %w", text, to, got, err)
			}
			text = to
			if i == 10 {
				// Only the text's table, so that renewals wait as well; but not for us.
				run := administrator(t, root)
				run("LOCK TABLES simba_lease READ")
				ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
				_, err := h.Checkpoint(ctx, text, "stuck")
				cancel()
				if err == nil {
					t.Error("it got by the lock")
				}
				run("UNLOCK TABLES")
			}
		}
		t.Logf("%s checkpoints", text)
		return nil
	}
	if err := a.do(t.Context(), b, "owner", work); err != nil {
		t.Error(err)
	}
	if n := a.saw(lease.EventTransition); n != 0 {
		t.Errorf("%d times in transition", n)
	}
}

// The owner's row is deleted: nothing is written until it is put back, which is not
// the same as not being the owner. Spaces at the end count.
func TestCheckpointOfADeletedRow(t *testing.T) {
	t.Parallel()
	m := server(t)
	name, root := m.Database(t)
	b := open(t, m.URL(name))
	k, other := newKeeper(t, b, 10*time.Second, 0), newKeeper(t, b, 10*time.Second, 0)
	a := k.own()
	k.text("", "a", "a")
	k.text("a ", "b", "a")
	k.text("a", "a ", "a ")
	k.text("a", "b", "a ")
	exec(t, root, "DELETE FROM simba_mutex")
	k.text("a ", "a ", "a ")
	_, err := k.Checkpoint(t.Context(), "a ", "b")
	if err == nil || lease.IsPermanent(err) || errors.Is(err, lease.ErrNotOwner) {
		t.Errorf("%v", err)
	}
	if got, err := other.Checkpoint(t.Context(), "a ", "b"); !errors.Is(err, lease.ErrNotOwner) {
		t.Errorf("another: %q, %v", got, err)
	}
	if got := k.renew(lease.RenewRequest{Fence: a.Fence}); got.State != lease.Mine && got.State != lease.Gone {
		t.Errorf("%+v", got)
	}
	if got := k.renew(lease.RenewRequest{Fence: a.Fence, Reassert: true}); got.State != lease.Mine {
		t.Fatalf("%+v", got)
	}
	k.text("a ", "b", "b")
	// Another name in the row is a loss at once, here too.
	exec(t, root, "UPDATE simba_mutex SET owner_id = 'someone-else'")
	if got, err := k.Checkpoint(t.Context(), "b", "c"); !errors.Is(err, lease.ErrNotOwner) {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := k.Checkpoint(t.Context(), "b", "é"); err == nil {
		t.Errorf("%q", got)
	}
}
