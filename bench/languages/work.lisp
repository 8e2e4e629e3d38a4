;; SPDX-License-Identifier: Apache-2.0
;;
;; Steel Bank Common Lisp: threads, a collector that protects pages and stops threads by signals, constants at a fixed address.
(defun chain (x)
  (let ((sum 0))
    (dotimes (i 2000 sum)
      (setf x (mod (+ (* x 48271) i) 2147483647)
            sum (mod (+ sum x (length (format nil "~d" x))) 1000003)))))
(compile 'chain)
(let ((rounds (parse-integer (car (last sb-ext:*posix-argv*)))) (sum 0))
  (dotimes (step 20)
    (dotimes (round rounds)
      (let ((threads (loop for k below 3 collect
                       (let ((first (+ (* 3 (+ (* step rounds) round)) k 1)))
                         (sb-thread:make-thread (lambda () (chain first)))))))
        (dolist (one threads) (setf sum (mod (+ (* sum 7) (sb-thread:join-thread one)) 1000003)))))
    (sb-ext:gc)
    (format t "~d ~d~%" step sum)
    (finish-output)))
