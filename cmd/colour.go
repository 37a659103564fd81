package cmd

import (
	"io"
	"os"

	"golang.org/x/term"
)

// colour is a colour of a terminal's text. All are written with the same number of
// bytes, so that a column in which every cell has one stays straight.
type colour string

const (
	plain  colour = "39"
	red    colour = "31"
	green  colour = "32"
	yellow colour = "33"
	blue   colour = "34"
)

// colours says whether what is written there may have some: people look at it, and
// have not asked for none (no-color.org).
func colours(to io.Writer) bool {
	f, ok := to.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" {
		return false
	}
	if kind := os.Getenv("TERM"); kind == "" || kind == "dumb" {
		return false
	}
	return term.IsTerminal(int(f.Fd()))
}

func (c colour) paint(text string) string { return "\x1b[" + string(c) + "m" + text + "\x1b[0m" }

// colourOf is that of a state of a mutex or of a doctor's finding.
func colourOf(word string) colour {
	switch word {
	case stateFree, fine:
		return green
	case stateHeld, shaky:
		return yellow
	case stateTransition, bad:
		return red
	case stateCooldown:
		return blue
	}
	return plain
}
