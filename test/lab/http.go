package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// get sends a GET request. If body is not nil, it decodes the JSON response into it.
func get(ctx context.Context, url string, body any) error {
	return call(ctx, http.MethodGet, url, nil, body)
}

// call sends a request with a JSON body and decodes the JSON response. question and answer may be nil.
func call(ctx context.Context, method, url string, question, answer any) error {
	var text io.Reader
	if question != nil {
		marshalled, err := json.Marshal(question)
		if err != nil {
			return err
		}
		text = bytes.NewReader(marshalled)
	}
	request, err := http.NewRequestWithContext(ctx, method, url, text)
	if err != nil {
		return err
	}
	if question != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode >= 300 {
		why, _ := io.ReadAll(io.LimitReader(response.Body, 500)) // as much as can be read
		return fmt.Errorf("%s %s: %s: %s", method, request.URL.Redacted(), response.Status, why)
	}
	if answer == nil {
		return nil
	}
	if err := json.NewDecoder(response.Body).Decode(answer); err != nil {
		return fmt.Errorf("read the answer of %s: %w", request.URL.Redacted(), err)
	}
	return nil
}
