package record

import "errors"

func (h *Hist) MarshalBinary() ([]byte, error)    { return nil, errors.New("later") }
func (h *Hist) UnmarshalBinary(data []byte) error { return errors.New("later") }
func (h *Hist) MarshalText() ([]byte, error)      { return nil, errors.New("later") }
func (h *Hist) UnmarshalText(text []byte) error   { return errors.New("later") }
