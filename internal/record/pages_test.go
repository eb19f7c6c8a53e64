package record

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
)

// pattern returns random pages as they occur in practice: full, nearly full, in ranges, scattered, with holes.
func pattern(r *rand.Rand) *words {
	w := new(words)
	w[r.IntN(wordsInPage)] = 1 // never empty: empty pages are not sent
	switch r.IntN(6) {
	case 0:
		return &full
	case 1:
		for i := range r.IntN(pageSize) {
			w[i/64] |= 1 << (i % 64)
		}
	case 2:
		for range r.IntN(3000) {
			i := r.IntN(pageSize)
			w[i/64] |= 1 << (i % 64)
		}
	case 3:
		*w = full
		for range 1 + r.IntN(300) {
			i := r.IntN(pageSize)
			w[i/64] &^= 1 << (i % 64)
		}
	case 4:
		for i := r.IntN(4); i < pageSize; i += 4 {
			w[i/64] |= 1 << (i % 64)
		}
	}
	return w
}

// decodePages decodes one set as a part of a snapshot.
func decodePages(set []byte) (SetPages, error) {
	var s Snapshot
	if err := json.Unmarshal(fmt.Appendf(nil, `{"sets":[%s]}`, set), &s); err != nil {
		return SetPages{}, err
	}
	return s.Sets[0], nil
}

func TestPagesSurviveJSON(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for range 300 {
		s := SetPages{Key: SetKey{Kind: SetReceived, Subscription: r.IntN(9), Publisher: r.IntN(9)}}
		for number := r.Uint64N(3); len(s.Pages) < 5; number += 1 + r.Uint64N(1000) {
			s.Pages = append(s.Pages, Page{number, pattern(r)})
		}
		data, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		back, err := decodePages(data)
		if err != nil {
			t.Fatal(err)
		}
		if back.Key != s.Key || len(back.Pages) != len(s.Pages) {
			t.Fatalf("key %v with %d pages came back as %v with %d", s.Key, len(s.Pages), back.Key, len(back.Pages))
		}
		for i, p := range s.Pages {
			if back.Pages[i].Number != p.Number || *back.Pages[i].words != *p.words {
				t.Fatalf("page %d changed on the way", p.Number)
			}
		}
	}
}

// Increments are sent every second, so their size must be proportional to their content.
func TestPagesAreSmall(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	for range 1000 {
		if n := len(pattern(r).append(nil)); n > pageBytes+1 {
			t.Fatalf("a page takes %d bytes, raw ones take %d", n, pageBytes)
		}
	}
	part, holes := new(words), full
	for i := range 1000 {
		part[i/64] |= 1 << (i % 64)
	}
	holes[7] = 3
	if n := len(full.append(nil)); n != 1 {
		t.Errorf("a full page takes %d bytes, want 1", n)
	}
	if n := len(part.append(nil)); n > 4 {
		t.Errorf("one stretch takes %d bytes, want at most 4", n)
	}
	if n := len(holes.append(nil)); n > 8 {
		t.Errorf("one hole takes %d bytes, want at most 8", n)
	}
}

// A damaged or forged record is rejected without a crash.
func TestPagesRefuseDamage(t *testing.T) {
	raw := append([]byte{0, formRaw}, make([]byte, pageBytes)...)
	far := append(binary.AppendUvarint(nil, maxPage), formFull)
	for name, pages := range map[string][]byte{
		"page without form": {0},
		"page of nothing":   {0, formRuns},
		"raw cut short":     raw[:len(raw)-1],
		"page out of range": far,
		"number that wraps": append([]byte{0, formFull}, binary.AppendUvarint(nil, ^uint64(0))...),
		"numbers out of range": append([]byte{5, formFull},
			append(binary.AppendUvarint(nil, maxPage-6), formFull)...),
		"run beyond the page":     {0, formRuns + 1, 0xff, 0x1f, 1},
		"run that is too long":    {0, formRuns + 1, 0, 0x80, 0x20},
		"gap beyond the page":     {0, formRuns + 1, 0x80, 0x20, 0},
		"second run beyond":       {0, formRuns + 2, 0, 0xfe, 0x1f, 1, 1},
		"runs that are not there": append([]byte{0}, binary.AppendUvarint(nil, 1<<60)...),
		"run without length":      {0, formRuns + 1, 0},
		"broken varint":           {0x80},
	} {
		text := fmt.Sprintf(`{"kind":"sent","publisher":0,"pages":%q}`, base64.StdEncoding.EncodeToString(pages))
		if _, err := decodePages([]byte(text)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	for _, text := range []string{`{"kind":"snet","publisher":0,"pages":""}`,
		`{"kind":"sent","publisher":-1,"pages":""}`,
		`{"kind":"sent","publisher":0,"subscription":1048576,"pages":""}`,
		`{"kind":"sent","publisher":0,"pages":"?"}`} {
		if _, err := decodePages([]byte(text)); err == nil {
			t.Errorf("accepted %s", text)
		}
	}
	for _, s := range []SetPages{
		{Pages: []Page{{Number: 1}}},
		{Pages: []Page{{1, &none}}},
		{Pages: []Page{{3, &full}, {2, &full}}},
		{Pages: []Page{{maxPage, &full}}},
	} {
		if _, err := s.MarshalJSON(); err == nil {
			t.Errorf("encoded what cannot be read: %+v", s)
		}
	}
}

func FuzzSetPages(f *testing.F) {
	r := rand.New(rand.NewPCG(5, 5))
	for range 20 {
		s := SetPages{Pages: []Page{{r.Uint64N(10), pattern(r)}, {10 + r.Uint64N(1000), pattern(r)}}}
		data, err := json.Marshal(s)
		if err != nil {
			f.Fatal(err)
		}
		var j setPagesJSON
		if err := json.Unmarshal(data, &j); err != nil {
			f.Fatal(err)
		}
		f.Add(j.Pages)
	}
	f.Fuzz(func(t *testing.T, pages []byte) {
		data, err := json.Marshal(setPagesJSON{Pages: pages})
		if err != nil {
			t.Fatal(err)
		}
		s, err := decodePages(data)
		if err != nil {
			return
		}
		if data, err = json.Marshal(s); err != nil {
			t.Fatal(err)
		}
		back, err := decodePages(data)
		if err != nil || len(back.Pages) != len(s.Pages) {
			t.Fatalf("%d pages became %d: %v", len(s.Pages), len(back.Pages), err)
		}
		for i := range s.Pages {
			if *back.Pages[i].words != *s.Pages[i].words {
				t.Fatalf("page %d changed", s.Pages[i].Number)
			}
		}
	})
}
