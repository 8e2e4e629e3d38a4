#lang racket/base
;; SPDX-License-Identifier: Apache-2.0
;;
;; Racket: its own threads and channels, preempted by a timer.
(define rounds (string->number (vector-ref (current-command-line-arguments) 0)))
(define (chain x i sum)
  (if (= i 0) sum
      (chain (modulo (+ (* x 48271) i) 2147483647) (- i 1) (modulo (+ sum x (string-length (number->string x))) 1000003))))
(define end (for/fold ([sum 0]) ([k 20])
  (define next
    (for/fold ([sum sum]) ([round rounds])
      (define answers (make-channel))
      (for ([j 4]) (thread (lambda () (channel-put answers (chain (+ (* 4 (+ (* k rounds) round)) j 1) 3000 0)))))
      (modulo (+ (* sum 7) (for/sum ([j 4]) (channel-get answers))) 1000003)))
  (printf "~a ~a\n" k next)
  (flush-output)
  next))
